// Package conformance builds the upstream suite as a program (`go test -c`), which `cargo xtask conformance` runs in a cluster's
// network. All choices are the suite's own flags. Two things are added: a line for each test when it ends, since `go test`
// prints the results of subtests only at the very end, and what stood in the cluster when a test failed, which is gone once the
// test has cleaned up.
package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	upstream "sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// evidenceFolder names the folder into which the evidence of failures goes; without it none is collected.
const evidenceFolder = "SESAME_CONFORMANCE_EVIDENCE"

func TestConformance(t *testing.T) {
	options := upstream.DefaultOptions(t)
	witness := witness{
		folder:    os.Getenv(evidenceFolder),
		client:    options.Client,
		clientset: options.Clientset,
	}
	ran := observe(&witness)
	options.Hook = announce

	// Deferred calls run before the suite's own clean-up, also after a fatal failure.
	began := time.Now()
	defer func() {
		if t.Failed() && !ran() {
			witness.testify("setup", began)
		}
	}()
	upstream.RunConformanceWithOptions(t, options)
}

// observe makes every test collect evidence when it fails. The returned function says whether any test has begun.
func observe(witness *witness) func() bool {
	var lock sync.Mutex
	began := false
	for i := range tests.ConformanceTests {
		name, test := tests.ConformanceTests[i].ShortName, tests.ConformanceTests[i].Test
		tests.ConformanceTests[i].Test = func(t *testing.T, s *suite.ConformanceTestSuite) {
			lock.Lock()
			began = true
			lock.Unlock()
			since := time.Now()
			defer func() {
				if t.Failed() {
					witness.testify(name, since)
				}
			}()
			test(t, s)
		}
	}
	return func() bool {
		lock.Lock()
		defer lock.Unlock()
		return began
	}
}

// announce prints how a test ended, as one line of JSON that the runner reads. It runs after the test's own clean-up, so a
// clean-up that fails is seen.
func announce(t *testing.T, test suite.ConformanceTest, s *suite.ConformanceTestSuite) {
	result := "pass"
	switch {
	case t.Failed():
		result = "fail"
	case s.RunTest != "" && s.RunTest != test.ShortName:
		return
	case t.Skipped() && s.RunTest == "" && !s.SupportedFeatures.HasAll(test.Features...):
		result = "unsupported"
	case t.Skipped():
		result = "skip"
	}
	line, err := json.Marshal(map[string]any{
		"test":        test.ShortName,
		"result":      result,
		"provisional": test.Provisional,
	})
	if err != nil {
		t.Fatalf("a result can't be printed: %v", err)
	}
	fmt.Printf("\n=== RESULT %s\n", line)
}
