package main

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/kubetest"
)

// shared is the API server of all tests but those that kill one.
var (
	binaries *kubetest.Binaries
	shared   *kubetest.Cluster
)

// startAlone starts an API server for tests that others would disturb, and that would disturb others.
var startAlone = sync.OnceValues(func() (*kubetest.Cluster, error) {
	c, err := kubetest.Start(binaries)
	if err != nil {
		return nil, err
	}
	alone = c
	return c, installCRDs(c)
})

// alone is what startAlone has started.
var alone *kubetest.Cluster

func newKubeAlone(t testing.TB) *kube {
	t.Helper()
	cluster, err := startAlone()
	xdstest.NoError(t, err)
	return newKubeIn(t, cluster)
}

func TestMain(m *testing.M) {
	if os.Getenv(serveInProcess) != "" {
		main()
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if binaries, err = kubetest.Build(); err != nil {
		// Without the module proxy there is no API server, and nothing to test with.
		fmt.Printf("SKIPPED all tests of dynxds-kubernetes: there is no API server: %v\n", err)
		return 0
	}
	if shared, err = kubetest.Start(binaries); err != nil {
		fmt.Println(err)
		return 1
	}
	defer shared.Stop()
	defer func() {
		if alone != nil {
			alone.Stop()
		}
	}()
	if err := installCRDs(shared); err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}
