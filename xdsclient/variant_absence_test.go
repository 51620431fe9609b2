package xdsclient

import (
	"testing"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

func TestAbsenceOfVariants(t *testing.T) {
	failOnDataErrors := []string{"dynamic_parameter_constraints fail_on_data_errors"}
	runTranscripts(t, []transcriptTest{
		// What a server does not have is that of a subscription, by its constraints, or of all subscriptions
		// to a name.
		{name: "removed", over: "delta", servers: variants, steps: `
			watch prod=a{env=prod} test=a{env=test} all=a -> stream; req +a +a{env=prod} +a{env=test}
			send 1 -a{env=prod} -> ack 1; prod: does not exist
			# The one without constraints.
			send 2 -a{}         -> ack 2; all: does not exist
			send 3 a{env=prod}=p a{env=test}=t -> ack 3; prod = p; test = t; all = p
			# All of them.
			send 4 -a           -> ack 4; prod ambient: does not exist; test ambient: does not exist; all ambient: does not exist
			send 5 a{v=1}=x     -> ack 5; prod = x; test = x; all = x
			send 6 -a{env=never} -never{env=prod} -> ack 6
		`},
		// xRFC TP3: an error names a subscription. With constraints it is for one of those to a name.
		{name: "error", servers: failOnDataErrors, steps: `
			watch prod=a{env=prod} test=a{env=test} -> stream; req +a{env=prod} +a{env=test}
			send 1 a{env=prod}?PermissionDenied a{env=test}=t -> ack 1; prod: server error; test = t
			send 2 a{env=test}?NotFound  -> ack 2; test: does not exist
			send 3 a?Internal            -> ack 3; prod: server error; test: server error
			send 4 a{env=never}?Internal -> ack 4
		`, then: func(x *transcript) {
			if got := x.c.Stats(); got.Unasked != 1 || got.ServerErrors != 3 {
				x.t.Errorf("Stats() is %+v, want 1 unasked and 3 server errors", got)
			}
			for _, r := range x.c.Dump().Resources {
				if !r.Failure.Err.Constraints.Equal(r.Constraints) {
					x.t.Errorf("got %v, want an error with the constraints %v", r.Failure.Err, r.Constraints)
				}
			}
		}},
		// Envoy, xDS protocol, "Deleting Resources", of variants: what the full state had for a subscription
		// and has no more was deleted.
		{name: "full state", over: "SotW", servers: failOnDataErrors, steps: `
			watch prod=a{env=prod} test=a{env=test} -> stream; req a{env=prod} a{env=test}
			send 1 a{env=prod}=p a{env=test}=t -> ack 1 a{env=prod} a{env=test}; prod = p; test = t
			send 2 a{env=test}=t               -> ack 2 a{env=prod} a{env=test}; prod: does not exist
		`},
		// TP2, "Matching Behavior and Best Practices": a cache "must attempt to fetch a larger value even if" it
		// has a smaller one, "before falling back to using the one it already has". So a new subscription goes
		// to the server, and what the cache has is only for a server that does not answer.
		{name: "new subscription", servers: variants, changes: true, steps: `
			watch first=a{shard=3}   -> stream; req +a{shard=3}
			send 1 a{shard=3}=3      -> ack 1; first = 3
			watch second=a{shard=0-5} -> req +a{shard=0-5}
			send 2 a{shard=5}=5      -> ack 2; second = 5
			watch third=a{shard=0-9} none=a{shard=7} -> req +a{shard=0-9} +a{shard=7}
			wait 15s                 -> third = 5; sotw none: does not exist; delta none: timeout
		`},
		// Each subscription has its own resource timer (gRFC A57, "Handling Resources That Do Not Exist").
		{name: "resource timers", servers: variants, steps: `
			watch prod=a{env=prod}   -> stream; req +a{env=prod}
			wait 7s
			watch test=a{env=test}   -> req +a{env=test}
			wait 8s                  -> prod: does not exist
			wait 7s                  -> test: does not exist
			send 1 a{env=prod}=late  -> ack 1; prod = late
		`},
		// A heartbeat (Envoy, xDS protocol, "TTL") is for the variant that it names.
		{name: "heartbeat", over: "delta", servers: variants, steps: `
			watch prod=a{env=prod} test=a{env=test} -> stream; req +a{env=prod} +a{env=test}
			send 1 a{env=prod}=p a{env=test}=t -> ack 1; prod = p; test = t
			send 2 -a                -> ack 2; prod ambient: does not exist; test ambient: does not exist
			send 3 a{env=prod}@1~    -> ack 3; prod = p
		`},
		// After a stream has ended each variant that the server still has is still its own.
		{name: "reconnect", servers: variants, steps: `
			watch prod=a{env=prod} test=a{env=test} -> stream; req +a{env=prod} +a{env=test}
			send 1 a{env=prod}=p a{env=test}=t -> ack 1; prod = p; test = t
			break
			wait 1s                  -> stream; req +a{env=prod} +a{env=test}
			send 2 a{env=prod}=p a{env=test}=t2 -> ack 2; test = t2
			decoded 3
		`},
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
