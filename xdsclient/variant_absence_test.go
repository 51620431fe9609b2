package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

func TestAbsenceOfVariants(t *testing.T) {
	failOnDataErrors := []string{"dynamic_parameter_constraints fail_on_data_errors"}
	runTranscripts(t, []transcriptTest{
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

// strictVariants are the features of a server of variants whose denials withdraw what is in use.
var strictVariants = []string{"dynamic_parameter_constraints fail_on_data_errors"}

// A denial that names no constraints may have crossed the request for one of the subscriptions to the
// name: then it is for those before only. It is believed of a new one when the server repeats it.
func TestDenialThatCrossesARequest(t *testing.T) {
	var tests []transcriptTest
	for name, deny := range map[string]string{
		"removed_resources":                          "-a",
		"removed_resource_names without constraints": "-a{*}",
		"NOT_FOUND":         "a?NotFound",
		"PERMISSION_DENIED": "a?PermissionDenied",
	} {
		kind := "does not exist"
		if name == "PERMISSION_DENIED" {
			kind = "server error"
		}
		test := transcriptTest{name: name, servers: strictVariants, steps: strings.NewReplacer("DENY", deny, "KIND", kind).Replace(`
			watch old=a{env=prod}   -> stream; req +a{env=prod}
			send 1 a{env=prod}=p    -> ack 1; old = p
			# The client moves, and what it moves from is deleted before the request goes out.
			batch watch test=a{env=test}, stop old, send 2 DENY -> ack 2; req +a{env=test} -a{env=prod}
			send 3 DENY             -> ack 3; again a{env=test}
			send 4 a{env=test}=t    -> ack 4; test = t
			# Nothing is on its way.
			send 5 DENY             -> ack 5; test: KIND
			# The client gets another subscription, of which there is nothing.
			watch late=a{env=late}  -> req +a{env=late}
			send 6 DENY             -> ack 6; again a{env=late}; ?test: KIND
			send 7 DENY             -> ack 7; late: KIND
		`)}
		if name == "removed_resources" { // which SotW does not have
			test.over, test.steps = "delta", strings.ReplaceAll(test.steps, "again ", "req +")
		}
		tests = append(tests, test)
	}
	// What a server denies while nobody watches it, and the server has not been told so, is asked for again
	// by the next watch, which is not notified of the denial: DPDS may move a client away from a variant and
	// back before its requests go out, and the variant be there again.
	for _, deny := range []string{"-a{env=prod}", "a{env=prod}?PermissionDenied", "a{env=prod}?Internal"} {
		for _, features := range [][]string{variants, strictVariants} {
			tests = append(tests, transcriptTest{name: fmt.Sprint("not watched: ", deny, features), servers: features, steps: strings.ReplaceAll(`
				watch kept old=a{env=prod}  -> stream; req +a{env=prod} +kept
				send 1 a{env=prod}=x kept=x -> ack 1; old = x; kept = x
				batch stop old, send 2 DENY kept=x, watch late=a{env=prod} -> ack 2; again a{env=prod}
				send 3 a{env=prod}=x kept=x -> ack 3; late = x
				# Without another watch it is given up.
				watch b{env=prod}           -> req +b{env=prod}
				batch stop b{env=prod}, send 4 -b{env=prod} a{env=prod}=x kept=x -> ack 4; req -b{env=prod}
			`, "DENY", deny)})
		}
	}
	// A denial that names no constraints is believed at once where it cannot have crossed the request: there
	// was nothing under the name before, or the server has answered a later request.
	tests = append(tests, transcriptTest{name: "cannot have crossed it", over: "delta", servers: variants, steps: `
		watch a{env=prod} a{env=test} -> stream; req +a{env=prod} +a{env=test}
		send 1 -a{*}                  -> ack 1; a{env=prod}: does not exist; a{env=test}: does not exist
		watch a{env=late}             -> req +a{env=late}
		watch b{env=prod}             -> req +b{env=prod}
		send 2 b{env=prod}=p          -> ack 2; b{env=prod} = p
		send 3 -a{*}                  -> ack 3; a{env=late}: does not exist
		# Nor is it ignored because of a name that was unsubscribed from long ago.
		watch c{env=prod}             -> req +c{env=prod}
		stop c{env=prod}              -> req -c{env=prod}
		watch d{env=prod}             -> req +d{env=prod}
		send 4 d{env=prod}=p          -> ack 4; d{env=prod} = p
		watch c{env=test}             -> req +c{env=test}
		send 5 -c{*}                  -> ack 5; c{env=test}: does not exist
	`})
	runTranscripts(t, tests)
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
