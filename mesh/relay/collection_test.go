package relay_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Upstream may answer for a wildcard in several responses. If its stream ends after the first, the wildcard
// gets the rest on the next one, also what the relay already had for a client that subscribes to it by name.
func TestWildcardIsCompletedAfterItsAnswerWasCutShort(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("a", ""), xdsmsg.EDSCluster("b", ""))
	named, d := r.delta(), r.delta()
	subscribe(named, node("named"), clusterType, "a")
	wantOnly(named, "a")
	var cut atomic.Bool
	r.up.OnResponse(func(_ *discoverypb.DiscoveryResponse, resp *discoverypb.DeltaDiscoveryResponse) bool {
		if len(resp.GetResources()) == 2 && cut.CompareAndSwap(false, true) {
			resp.Resources = slices.DeleteFunc(slices.Clone(resp.Resources), func(res *discoverypb.Resource) bool { return res.GetName() == "a" })
		}
		return true
	})
	subscribe(d, node("wild"), clusterType, "*")
	wantOnly(d, "b")
	if !cut.Load() {
		t.Fatal("upstream never sent both resources for the wildcard")
	}
	r.up.BreakStreams(errors.New("broken"))
	wantOnly(d, "a")
}
