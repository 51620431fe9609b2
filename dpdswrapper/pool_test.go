package dpdswrapper_test

import (
	"testing"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// acquire returns the shared wrapper of the bootstrap of a node.
func acquire(t *testing.T, node string) (*dpdswrapper.Wrapper, func()) {
	t.Helper()
	w, release, err := dpdswrapper.AcquireWrapper(config(`"node": {"id": "` + node + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	return w, release
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	cfg := config(`"node": {"id": "acquire"}`)
	client, release, err := dpdswrapper.Acquire(cfg, "xds:///s", nil)
	if err != nil || client.Bootstrap() != cfg || !dpdswrapper.Remembered(cfg) {
		t.Fatalf("the client of the bootstrap is not acquired: %v", err)
	}
	w, releaseOne := acquire(t, "acquire")
	same, releaseSame := acquire(t, "acquire")
	other, releaseOther := acquire(t, "another node")
	if w != same || w == other {
		t.Error("clients are not those of their bootstraps")
	}
	for _, f := range []func(){release, release, releaseOther, releaseOne} {
		f()
	}
	if !dpdswrapper.Remembered(cfg) {
		t.Error("a client was released while it was held")
	}
	releaseSame()
	if dpdswrapper.Remembered(cfg) {
		t.Error("the client is not released")
	}
	if _, _, err := dpdswrapper.Acquire(nil, "", nil); err == nil {
		t.Error("no error without a bootstrap")
	}
}

// Constraints that the program sets apply to the wrapper of their bootstrap, also if it is
// created later. Those for one bootstrap take precedence over those for all.
//
// It is not parallel, as it sets constraints for the whole process.
func TestConstraintsOfTheProgram(t *testing.T) {
	cfg := config(`"node": {"id": "program"}`)
	t.Cleanup(func() {
		dpdswrapper.SetConstraints(nil, dynparam.ByType{})
		dpdswrapper.SetConstraints(cfg, dynparam.ByType{})
	})
	expect := func(w *dpdswrapper.Wrapper, want dynparam.Constraints) {
		t.Helper()
		if got := w.OwnConstraints().For(clusterType); !got.Equal(want) {
			t.Errorf("constraints %v, want %v", got, want)
		}
	}
	dpdswrapper.SetConstraints(nil, only(dynparam.AnyType, "shard", "1", "env", "prod"))
	dpdswrapper.SetConstraints(cfg, only(clusterType, "shard", "2"))
	w, release := acquire(t, "program")
	other, releaseOther := acquire(t, "program 2")
	defer releaseOther()
	expect(w, exact("shard", "2", "env", "prod"))
	expect(other, exact("shard", "1", "env", "prod"))
	dpdswrapper.SetConstraints(nil, only(dynparam.AnyType, "shard", "3"))
	expect(w, exact("shard", "2"))
	expect(other, exact("shard", "3"))
	// They outlive the channels.
	release()
	w, release = acquire(t, "program")
	expect(w, exact("shard", "2"))
	dpdswrapper.SetConstraints(cfg, dynparam.ByType{})
	expect(w, exact("shard", "3"))
	// Nothing is left of an unused bootstrap.
	release()
	if dpdswrapper.Remembered(cfg) {
		t.Error("the pool does not forget")
	}
}
