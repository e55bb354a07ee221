package conformance

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Collecting takes this long at most, so that an API server that hangs does not hang the run.
const collectingTimeout = time.Minute

// Where Sesame runs, and how it marks the pods that it makes.
const (
	sesameNamespace = "sesame-system"
	sesamesPods     = "app.kubernetes.io/managed-by=sesame"
)

// The namespaces that the suite makes begin so.
const suiteNamespaces = "gateway-conformance"

// What is written down of each namespace of the suite; kinds that the cluster does not have are left out.
var kinds = []schema.GroupVersionKind{
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "ListenerSet"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GRPCRoute"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "TLSRoute"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "TCPRoute"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "UDPRoute"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "BackendTLSPolicy"},
	{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Pod"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
}

// witness writes down what stands in a cluster.
type witness struct {
	folder    string
	client    client.Client
	clientset clientset.Interface
}

// testify writes a folder called name: the objects of the suite's namespaces, events, and logs since that time. What can't be
// had is said in the place where it would stand: a failing test must not fail for another reason.
func (w *witness) testify(name string, since time.Time) {
	if w.folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectingTimeout)
	defer cancel()
	folder := filepath.Join(w.folder, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		fmt.Printf("no evidence is kept: %v\n", err)
		return
	}
	w.write(folder, "objects.yaml", w.objects(ctx))
	w.write(folder, "events.txt", w.events(ctx, since))
	for _, pod := range w.pods(ctx) {
		for _, container := range pod.Spec.Containers {
			file := pod.Namespace + "_" + pod.Name + "_" + container.Name + ".log"
			w.write(folder, file, w.log(ctx, pod, container.Name, since))
		}
	}
}

func (w *witness) write(folder, file, text string) {
	if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
		fmt.Printf("%s is not kept: %v\n", file, err)
	}
}

func (w *witness) objects(ctx context.Context) string {
	var text strings.Builder
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := w.client.List(ctx, list); err != nil {
			fmt.Fprintf(&text, "---\n# %s: %v\n", kind.Kind, err)
			continue
		}
		for _, object := range list.Items {
			if object.GetNamespace() != "" && !strings.HasPrefix(object.GetNamespace(), suiteNamespaces) {
				continue
			}
			unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
			document, err := yaml.Marshal(object.Object)
			if err != nil {
				document = fmt.Appendf(nil, "# %s %s: %v\n", kind.Kind, object.GetName(), err)
			}
			fmt.Fprintf(&text, "---\n%s", document)
		}
	}
	return text.String()
}

func (w *witness) events(ctx context.Context, since time.Time) string {
	list, err := w.clientset.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	last := func(event *corev1.Event) time.Time {
		if event.EventTime.After(event.LastTimestamp.Time) {
			return event.EventTime.Time
		}
		return event.LastTimestamp.Time
	}
	sort.SliceStable(list.Items, func(i, j int) bool { return last(&list.Items[i]).Before(last(&list.Items[j])) })
	var text strings.Builder
	for i := range list.Items {
		event := &list.Items[i]
		// Timestamps of events are whole seconds.
		if last(event).Before(since.Add(-time.Second)) {
			continue
		}
		object := event.InvolvedObject
		fmt.Fprintf(&text, "%s %s %s %s/%s %s: %s\n", last(event).UTC().Format(time.RFC3339), event.Type,
			object.Kind, object.Namespace, object.Name, event.Reason, event.Message)
	}
	return text.String()
}

// Sesame's own pods and those that it makes.
func (w *witness) pods(ctx context.Context) []corev1.Pod {
	own, err := w.clientset.CoreV1().Pods(sesameNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	made, err := w.clientset.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: sesamesPods})
	if err != nil {
		return own.Items
	}
	pods := own.Items
	for _, pod := range made.Items {
		if pod.Namespace != sesameNamespace {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (w *witness) log(ctx context.Context, pod corev1.Pod, container string, since time.Time) string {
	request := w.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container:  container,
		SinceTime:  &metav1.Time{Time: since},
		Timestamps: true,
	})
	stream, err := request.Stream(ctx)
	if err != nil {
		return err.Error()
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		return string(text) + "\n" + err.Error()
	}
	return string(text)
}
