package main

import (
	"os"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// The manifest in deploy is what the reader of policies expects.
func TestUpToDate(t *testing.T) {
	t.Parallel()
	want, err := generate()
	xdstest.NoError(t, err)
	got, err := os.ReadFile("../../../../deploy/kubernetes/crd.yaml")
	xdstest.NoError(t, err)
	if string(got) != string(want) {
		t.Error("deploy/kubernetes/crd.yaml is not what the reader expects; run make generate")
	}
}
