package xdsclient

import (
	"fmt"
	"testing"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// Constraints that cannot be read are a fault of what carries them, and of nothing
// else.
func TestUnreadableConstraintsOfASubscriptionName(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		e, _ := d.watch("a", "env=prod")
		d.listens()
		faulty := &discoverypb.ResourceName{Name: "a", DynamicParameterConstraints: &discoverypb.DynamicParameterConstraints{
			KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{"env": {}},
		}}
		v := d.says(variantOf("a", "env=prod", "p"), func(r *answer) {
			r.RemovedResourceNames = append(r.RemovedResourceNames, faulty)
			r.ResourceErrors = append(r.ResourceErrors, &discoverypb.ResourceError{ResourceName: faulty})
		})
		if v != ads.VerdictRejected {
			t.Errorf("verdict %v, want rejected", v)
		}
		e.cluster("p")
		e.silent()
	})
}

// Of many names that were given up, each counts as one that the server may know of.
func TestManyNamesThatWereGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, true)
		d.watch("kept")
		var stops []func()
		for i := range ads.MaxUnsubscribed + 10 {
			_, stop := d.watch(fmt.Sprint("c", i))
			stops = append(stops, stop)
		}
		d.listens()
		for _, stop := range stops {
			stop()
		}
		d.listens()
		// Any may have been one that is not remembered.
		e, _ := d.watch("c0", "env=prod")
		d.listens()
		d.says(gone("c0"))
		e.silent()
		d.listens()
		d.says(gone("c0"))
		e.fault(KindDoesNotExist)
	})
}
