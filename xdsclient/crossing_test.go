package xdsclient

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// Envoy, xDS protocol, "ACK and NACK": a server ignores requests with a stale nonce. If a response
// crosses requests that leave a name out and ask for it again, the server has to notice both, or it would
// not send the resource.
func TestResponseThatCrossesARequest(t *testing.T) {
	const received = `
		watch e:a e:b   -> stream; e.req a b
		send e:1 a b    -> e.ack 1 a b; e:a =; e:b =
	`
	const leftOut = received + `
		stop e:b        -> e.ack 1 a
	`
	// A server that has no b goes on with other resources. It is not asked for ever, and the resource timer,
	// which began with the first request, goes on.
	repeated, step := `
		watch e:b       -> e.ack 1 a b
	`, defaultResourceTimeout/(2*ads.MaxRepeats)
	for n := 2; n < 2+ads.MaxRepeats; n++ {
		repeated += fmt.Sprintf(`
		wait %[1]v
		send e:%[2]d a  -> e.ack %[2]d a b; e.ack %[2]d a; e.ack %[2]d a b
		`, step, n)
	}
	runTranscripts(t, []transcriptTest{
		{name: "of a server that does not have it", over: "SotW", steps: leftOut + repeated + `
			send e:9 a  -> e.ack 9 a b
			wait 7500ms -> e:b: does not exist
		`},
	})
}

// Envoy, xDS protocol, "Deleting Resources": the full state is that of the names which the
// server was told of. It says nothing of one that is watched by now, even if a response had it
// for an earlier subscription.
func TestFullStateBeforeTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, false, "fail_on_data_errors")
		d.watch("kept")
		_, stop := d.watch("a", "env=prod")
		d.hears("+a{env=prod}", "+kept")
		d.says(variantOf("a", "env=prod", "1"))
		stop()
		d.hears("-a{env=prod}")
		prod, _ := d.watch("a", "env=prod")
		d.says(variantOf("a", "env=prod", "1"))
		prod.cluster("1")
		d.says() // of kept alone
		prod.silent()
		d.hears("+a{env=prod}")
		d.says()
		prod.fault(KindDoesNotExist)
	})
}

// An answer that lists the names of the last request, without one that is watched by now and
// that the response had, has the server leave it out of the full state.
func TestFullStateOfAnOlderList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, false, "fail_on_data_errors")
		_, stop := d.watch("a", "env=prod")
		d.hears("+a{env=prod}")
		d.says(variantOf("a", "env=prod", "1"))
		d.hears()
		_, stopTest := d.watch("a", "env=test")
		stop()
		d.hears("+a{env=test}", "-a{env=prod}")

		// The client moves back, and a response crosses its last request. It has something
		// that nobody watches, so the answer lists what the last request did.
		prod, _ := d.watch("a", "env=prod")
		stopTest()
		d.says(variantOf("a", "env=prod", "2"), variantOf("nobody's", "", "1"))
		prod.cluster("2")
		d.hears("+a{env=prod}", "-a{env=test}")
		d.says() // to the answer, for which there is nothing
		prod.silent()
		d.says(variantOf("a", "env=prod", "2"))
		prod.silent()
		for range 2 { // which may have crossed the request
			d.says()
			prod.silent()
		}
		d.says()
		prod.fault(KindDoesNotExist)
	})
}

// A full state that omits a resource deletes it, but not if the client has given the resource up
// and taken it up again: then it may be that of the list without the resource, which the server
// answers though the resource is there again (TP2: DPDS moves a client to and fro within a
// round trip). The server is asked once more.
func TestFullStateOfTheListWithoutIt(t *testing.T) {
	// The variant is accepted and then omitted, by responses that both crossed the last request.
	crossed := func(t *testing.T, f func(d *desk, prod *ear)) {
		bubble(t, func(t *testing.T) {
			d := newDesk(t, false, "fail_on_data_errors")
			prod := d.movesAwayAndBack()
			d.says(variantOf("a", "env=prod", "1"))
			prod.cluster("1")
			d.listens()
			d.says() // env=test, of which there is nothing
			prod.silent()
			if diff := cmp.Diff([]string{"a{env=prod} kept", "a{env=prod} kept"}, d.lists()); diff != "" {
				t.Errorf("lists (-want +got):\n%s", diff)
			}
			f(d, prod)
		})
	}
	t.Run("and is there", func(t *testing.T) {
		crossed(t, func(d *desk, prod *ear) {
			d.says(variantOf("a", "env=prod", "2"))
			prod.cluster("2")
		})
	})
	t.Run("and is gone, as the next full state says", func(t *testing.T) {
		crossed(t, func(d *desk, prod *ear) {
			d.says()
			prod.silent()
			pass(d.k.channel.expiry.timeout)
			prod.fault(KindDoesNotExist)
		})
	})
	t.Run("and is gone, as silence says", func(t *testing.T) {
		crossed(t, func(d *desk, prod *ear) {
			pass(d.k.channel.expiry.timeout)
			prod.fault(KindDoesNotExist)
		})
	})
	t.Run("and the stream ends", func(t *testing.T) {
		crossed(t, func(d *desk, prod *ear) {
			d.breaks()
			d.hears("+a{env=prod}", "+kept")
			d.says()
			prod.fault(KindDoesNotExist)
		})
	})
}

// A variant in a response with the full state may match a subscription that goes on, which
// takes it or has a better one, and have been sent for one that the client has given up.
// The server has to notice that before the latter is taken up again.
func TestFullStateOfVariantsThatCrossesARequest(t *testing.T) {
	for _, test := range []struct{ name, other, has string }{
		{"and has what another subscription takes", "env=prod", "p"},
		{"and has what is outranked", "shard=1-3", "3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := newDesk(t, false)
				variants := []func(*answer){variantOf("a", "env=prod", "p")}
				if test.has == "3" {
					variants = append(variants, variantOf("a", "shard=3", "3"))
				}
				other, _ := d.watch("a", test.other)
				_, stop := d.watch("a", "env!=test")
				d.listens()
				d.says(variants...)
				other.cluster(test.has)
				d.listens()

				stop()
				d.hears("-a{env!=test}")
				d.says(variants...)
				again, _ := d.watch("a", "env!=test")
				var lists []int
				for message := d.k.request(); message != nil; message = d.k.request() {
					var r discoverypb.DiscoveryRequest
					d.unmarshal(message, &r)
					lists = append(lists, len(r.GetResourceLocators()))
				}
				if diff := cmp.Diff([]int{1, 2}, lists); diff != "" {
					t.Fatalf("locators in the answer and in the request after it (-want +got):\n%s", diff)
				}
				d.says(variants...)
				again.cluster("p")
				other.silent()
			})
		})
	}
}
