package xdsclient

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// What a server says is not there it says of a subscription, by its constraints, or
// of all subscriptions to a name.
func TestAbsenceOfAVariant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, true)
		prod, _ := d.watch("a", "env=prod")
		test, _ := d.watch("a", "env=test")
		all, _ := d.watch("a")
		ears := []*ear{prod, test, all}
		d.listens()
		d.says(gone("a", "env=prod"))
		prod.fault(KindDoesNotExist)
		d.says(gone("a", "")) // the one without constraints
		all.fault(KindDoesNotExist)
		test.silent()
		d.says(variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t"))
		prod.cluster("p")
		test.cluster("t")
		all.cluster("p")
		d.says(gone("a")) // all of them
		for _, e := range ears {
			e.ambient(KindDoesNotExist)
		}
		d.says(variantOf("a", "v=1", "1"))
		for _, e := range ears {
			e.cluster("1")
		}
		d.says(func(r *answer) { r.RemovedResources = []string{"a"} })
		for _, e := range ears {
			e.ambient(KindDoesNotExist)
		}
		d.says(gone("a", "env=never"), gone("never", "env=prod"))
		for _, e := range ears {
			e.silent()
		}
	})
}

// xRFC TP3: an error names a subscription. With constraints it is for one of those to
// a name.
func TestErrorForAVariant(t *testing.T) {
	overDesks(t, []string{"fail_on_data_errors"}, func(t *testing.T, d *desk) {
		prod, test := d.watchBoth("env=prod", "env=test")
		d.says(refuses(codes.PermissionDenied, "a", "env=prod"), variantOf("a", "env=test", "t"))
		if err := prod.fault(KindServer); err.Code != codes.PermissionDenied || !err.Constraints.Equal(choose("env=prod")) {
			t.Errorf("got %v, want PERMISSION_DENIED with the constraints", err)
		}
		test.cluster("t")
		d.says(refuses(codes.NotFound, "a", "env=test"))
		test.fault(KindDoesNotExist)
		prod.silent()
		d.says(refuses(codes.Internal, "a"))
		allFault(KindServer, prod, test)
		d.says(refuses(codes.Internal, "a", "env=never"))
		allSilent(prod, test)
		if got := d.k.c.Stats(); got.Unasked != 1 || got.ServerErrors != 3 {
			t.Errorf("Stats() is %+v, want 1 unasked and 3 server errors", got)
		}
	})
}

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

// Envoy, xDS protocol, "Deleting Resources", of variants: what the full state had for
// a subscription and has no more was deleted.
func TestFullStateWithoutAVariant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, false, "fail_on_data_errors")
		prod, test := d.watchBoth("env=prod", "env=test")
		d.says(variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t"))
		prod.cluster("p")
		test.cluster("t")
		d.says(variantOf("a", "env=test", "t"))
		prod.fault(KindDoesNotExist)
		test.silent()
	})
}

// TP2, "Matching Behavior and Best Practices": a cache "must attempt to fetch a larger
// value even if" it has a smaller one, "before falling back to using the one it
// already has". So a new subscription goes to the server, and what the cache has is
// only for a server that keeps silent.
func TestNewSubscriptionGoesToTheServer(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		d.types.clusters.FullStateInSotW = false
		first, _ := d.watch("a", "shard=3")
		d.listens()
		d.says(variantOf("a", "shard=3", "3"))
		first.cluster("3")
		d.listens()
		second, _ := d.watch("a", "shard=0-5")
		d.hears("+a{shard in [0-5]}")
		second.silent()
		d.says(variantOf("a", "shard=5", "5"))
		second.cluster("5")
		d.listens()

		third, _ := d.watch("a", "shard=0-9")
		unmatched, _ := d.watch("a", "shard=7")
		d.hears("+a{shard in [0-9]}", "+a{shard=7}")
		third.silent()
		pass(d.k.channel.expiry.timeout)
		third.cluster("5")
		kind := KindDoesNotExist
		if d.delta {
			kind = KindTimeout
		}
		unmatched.fault(kind)
	})
}

// Each subscription has its own resource timer (gRFC A57, "Handling Resources That Do
// Not Exist").
func TestResourceTimerOfEachVariant(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		prod, _ := d.watch("a", "env=prod")
		d.hears("+a{env=prod}")
		pass(d.k.channel.expiry.timeout / 2)
		test, _ := d.watch("a", "env=test")
		d.hears("+a{env=test}")
		pass(d.k.channel.expiry.timeout / 2)
		prod.fault(KindDoesNotExist)
		test.silent()
		pass(d.k.channel.expiry.timeout / 2)
		test.fault(KindDoesNotExist)
		d.says(variantOf("a", "env=prod", "late"))
		prod.cluster("late")
		test.silent()
	})
}

// A heartbeat (Envoy, xDS protocol, "TTL") is for the variant that it names.
func TestHeartbeatOfAVariant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, true)
		prod, test := d.watchBoth("env=prod", "env=test")
		d.says(variantWith("a", "env=prod", "1", cluster("a", "p")), variantWith("a", "env=test", "1", cluster("a", "t")))
		prod.cluster("p")
		test.cluster("t")
		d.says(gone("a"))
		allAmbient(KindDoesNotExist, prod, test)
		d.says(func(r *answer) {
			r.Resources = []*discoverypb.Resource{{Name: "a", Version: "1", DynamicParameters: parameters("env=prod")}}
		})
		prod.cluster("p")
		test.silent()
	})
}

// After a stream has ended each variant that the server still has is still its own.
func TestVariantsOverReconnects(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		prod, test := d.watchBoth("env=prod", "env=test")
		d.says(variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t"))
		prod.cluster("p")
		test.cluster("t")
		d.breaks()
		if got := d.listens(); !slices.Equal(got, []string{"+a{env=prod}", "+a{env=test}"}) {
			t.Errorf("the new stream asks for %q", got)
		}
		d.says(variantOf("a", "env=prod", "p"), variantOf("a", "env=test", "t2"))
		prod.silent()
		test.cluster("t2")
		d.types.wantDecoded(t, 3)
	})
}
