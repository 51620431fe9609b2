package dpdswrapper_test

import (
	"testing"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Channels with equal bootstraps share one wrapper, as they share one client.
func TestOneWrapperPerFingerprint(t *testing.T) {
	t.Parallel()
	acquire := func(node string) (*dpdswrapper.Wrapper, func()) {
		w, release, err := dpdswrapper.Acquire(config(t, `"node": {"id": "`+node+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		return w, release
	}
	one, releaseOne := acquire("fingerprint")
	same, releaseSame := acquire("fingerprint")
	other, releaseOther := acquire("fingerprint 2")
	if one != same {
		t.Error("two wrappers for one fingerprint")
	}
	if one == other {
		t.Error("one wrapper for two fingerprints")
	}
	releaseOne()
	releaseOne()
	again, releaseAgain := acquire("fingerprint")
	if again != same {
		t.Error("the wrapper is not kept while it is held")
	}
	releaseSame()
	releaseAgain()
	releaseOther()
	fresh, releaseFresh := acquire("fingerprint")
	defer releaseFresh()
	if fresh == one {
		t.Error("the wrapper of a client that is closed is used again")
	}
}

func TestAcquireNeedsABootstrap(t *testing.T) {
	t.Parallel()
	if _, _, err := dpdswrapper.Acquire(nil); err == nil {
		t.Error("no error without a bootstrap")
	}
}

// Constraints that the program sets apply to the wrapper of their bootstrap,
// before and after it is made, and those for one bootstrap win over those for all.
//
// It is not parallel, as it sets constraints for the whole process.
func TestConstraintsOfTheProgram(t *testing.T) {
	cfg := config(t, `"node": {"id": "program"}`)
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
	w, release, err := dpdswrapper.Acquire(cfg)
	if err != nil {
		t.Fatal(err)
	}
	other, releaseOther, err := dpdswrapper.Acquire(config(t, `"node": {"id": "program 2"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer releaseOther()
	expect(w, exact("shard", "2", "env", "prod"))
	expect(other, exact("shard", "1", "env", "prod"))
	dpdswrapper.SetConstraints(nil, only(dynparam.AnyType, "shard", "3"))
	expect(w, exact("shard", "2"))
	expect(other, exact("shard", "3"))
	// They outlive the channels.
	release()
	w, release, err = dpdswrapper.Acquire(cfg)
	if err != nil {
		t.Fatal(err)
	}
	expect(w, exact("shard", "2"))
	dpdswrapper.SetConstraints(cfg, dynparam.ByType{})
	expect(w, exact("shard", "3"))
	// Nothing is left of a bootstrap that nobody uses.
	release()
	if dpdswrapper.Remembered(cfg) {
		t.Error("the pool does not forget")
	}
}
