package main

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/dynxds/dynxds/cmd/dynxds/kubernetes/internal/kubetest"
)

// shared is the API server of all tests but those that kill one.
var (
	binaries *kubetest.Binaries
	shared   *kubetest.Cluster
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if binaries, err = kubetest.Build(os.Stderr); err != nil {
		// Without the module proxy there is no API server, and nothing to test with.
		fmt.Printf("SKIPPED all tests of dynxds-kubernetes: there is no API server: %v\n", err)
		return 0
	}
	if shared, err = kubetest.Start(binaries); err != nil {
		fmt.Println(err)
		return 1
	}
	defer shared.Stop()
	if err := installCRDs(shared); err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}
