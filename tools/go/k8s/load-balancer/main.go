// Command load-balancer gives each Service of type LoadBalancer an address of a pool, by writing it into the Service's status.
// kube-proxy does the rest: it leads what arrives for that address to the Service's endpoints.
//
// spec.loadBalancerIP is followed if that is a free address of the pool; otherwise the Service waits for it. Services with a
// loadBalancerClass are someone else's.
package main

import (
	"context"
	"flag"
	"log"
	"net/netip"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that says how to reach the API server")
	prefix := flag.String("pool", "", "addresses to hand out, as a prefix")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *prefix); err != nil {
		log.Fatal(err)
	}
}

// controller brings the statuses of Services in line with a pool.
type controller struct {
	client   kubernetes.Interface
	services listers.ServiceLister
	queue    workqueue.TypedRateLimitingInterface[string]
	pool     *pool
	// waiting are Services that got no address.
	waiting map[string]bool
}

func run(ctx context.Context, kubeconfig, prefix string) error {
	parsed, err := netip.ParsePrefix(prefix)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services()
	c := &controller{
		client:   client,
		services: services.Lister(),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		pool:     newPool(parsed),
		waiting:  map[string]bool{},
	}
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			c.queue.Add(key)
		}
	}
	registration, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: enqueue,
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	if err := c.adopt(); err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for {
		key, down := c.queue.Get()
		if down {
			return nil
		}
		switch err := c.reconcile(ctx, key); {
		case err == nil:
			c.queue.Forget(key)
		default:
			if !apierrors.IsConflict(err) {
				log.Printf("%s: %v", key, err)
			}
			c.queue.AddRateLimited(key)
		}
		c.queue.Done(key)
	}
}

// adopt leaves Services the addresses that an earlier run gave them.
func (c *controller) adopt() error {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, service := range all {
		if !wanted(service) {
			continue
		}
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			if address, err := netip.ParseAddr(ingress.IP); err == nil && c.pool.held[address] == "" {
				c.pool.hold(service.Namespace+"/"+service.Name, address)
			}
		}
	}
	return nil
}

func (c *controller) reconcile(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil // No retry makes it a key.
	}
	service, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.release(key)
		return nil
	} else if err != nil {
		return err
	}
	if !wanted(service) {
		c.release(key)
		if service.Spec.LoadBalancerClass != nil {
			return nil
		}
		return c.write(ctx, service, nil)
	}
	before, had := c.pool.by[key]
	address, ok := c.pool.take(key, service.Spec.LoadBalancerIP)
	if had && before != address {
		c.wake()
	}
	if !ok {
		log.Printf("%s: no address (it asks for %q)", key, service.Spec.LoadBalancerIP)
		c.waiting[key] = true
		return c.write(ctx, service, nil)
	}
	delete(c.waiting, key)
	vip := corev1.LoadBalancerIPModeVIP
	return c.write(ctx, service, []corev1.LoadBalancerIngress{{IP: address.String(), IPMode: &vip}})
}

// release frees a Service's address.
func (c *controller) release(key string) {
	delete(c.waiting, key)
	if c.pool.release(key) {
		c.wake()
	}
}

// wake lets those try again that wait for an address.
func (c *controller) wake() {
	for key := range c.waiting {
		c.queue.Add(key)
	}
}

// write puts addresses into a Service's status, unless they are there.
func (c *controller) write(ctx context.Context, service *corev1.Service, want []corev1.LoadBalancerIngress) error {
	have := service.Status.LoadBalancer.Ingress
	if len(have) == len(want) && (len(want) == 0 || have[0].IP == want[0].IP) {
		return nil
	}
	service = service.DeepCopy()
	service.Status.LoadBalancer.Ingress = want
	_, err := c.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
	return err
}

func wanted(service *corev1.Service) bool {
	return service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil &&
		service.DeletionTimestamp == nil
}
