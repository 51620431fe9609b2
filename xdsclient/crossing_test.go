package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// sotwPeer is a state-of-the-world server that a test speaks for, at a core: it reads
// the requests for one type, and pushes resources of it.
type sotwPeer struct {
	t     *testing.T
	k     *core
	typ   *ResourceType
	nonce int
}

// requests returns those that are due, as the nonce and the names.
func (p *sotwPeer) requests() (list []string) {
	p.t.Helper()
	for message := p.k.request(); message != nil; message = p.k.request() {
		var r discoverypb.DiscoveryRequest
		(&desk{t: p.t}).unmarshal(message, &r)
		list = append(list, fmt.Sprintf("%s: %s", r.GetResponseNonce(), strings.Join(r.GetResourceNames(), " ")))
	}
	return list
}

func (p *sotwPeer) wants(when string, want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.requests()); diff != "" {
		p.t.Fatalf("requests %s (-want +got):\n%s", when, diff)
	}
}

// has pushes resources.
func (p *sotwPeer) has(names ...string) {
	p.t.Helper()
	p.nonce++
	r := &discoverypb.DiscoveryResponse{TypeUrl: p.typ.TypeURL, VersionInfo: fmt.Sprint(p.nonce), Nonce: fmt.Sprint("n", p.nonce)}
	for _, name := range names {
		if p.typ.FullStateInSotW {
			r.Resources = append(r.Resources, pack(p.t, cluster(name, "")))
		} else {
			r.Resources = append(r.Resources, pack(p.t, endpoints(name)))
		}
	}
	p.k.push(mustMarshal(p.t, r))
}

// overCrossing runs a test in which a and b were subscribed to and received.
func overCrossing(t *testing.T, f func(t *testing.T, p *sotwPeer, watch func(name string) (stop func()), stopB func())) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		p := &sotwPeer{t: t, k: newCore(t), typ: newTestTypes().endpoints}
		watch := func(name string) (stop func()) {
			_, stop = listen(t, p.k.c, p.typ, name)
			return stop
		}
		watch("a")
		stopB := watch("b")
		p.wants("at first", ": a b")
		p.has("a", "b")
		p.wants("after the first response", "n1: a b")
		f(t, p, watch, stopB)
	})
}

// Envoy, xDS protocol, "ACK and NACK": a server ignores requests with a stale nonce. If
// a response crosses requests that leave a name out and ask for it again, the server
// has to notice both, or it would not send the resource.
func TestResponseThatCrossesARequest(t *testing.T) {
	t.Run("to ask for it again", func(t *testing.T) {
		overCrossing(t, func(t *testing.T, p *sotwPeer, watch func(string) func(), stopB func()) {
			stopB()
			p.wants("without b", "n1: a")
			watch("b")
			p.wants("with b again", "n1: a b")
			p.has("a")
			p.wants("after the response", "n2: a b", "n2: a", "n2: a b")
			p.has("b")
			p.wants("after the answer", "n3: a b")
			p.has("a")
			p.wants("in the end", "n4: a b")
		})
	})
	t.Run("to leave it out", func(t *testing.T) {
		overCrossing(t, func(t *testing.T, p *sotwPeer, watch func(string) func(), stopB func()) {
			stopB()
			p.wants("without b", "n1: a")
			p.has("a")
			watch("b")
			p.wants("with b again", "n2: a", "n2: a b")
		})
	})
	t.Run("of two before either is answered", func(t *testing.T) {
		overCrossing(t, func(t *testing.T, p *sotwPeer, watch func(string) func(), stopB func()) {
			stopB()
			p.wants("without b", "n1: a")
			p.has("a")
			p.has("a")
			watch("b")
			p.wants("with b again", "n3: a", "n3: a b")
		})
	})
	t.Run("and another one its answer", func(t *testing.T) {
		overCrossing(t, func(t *testing.T, p *sotwPeer, watch func(string) func(), stopB func()) {
			stopB()
			p.wants("without b", "n1: a")
			p.has("a")
			p.wants("after the first response", "n2: a")
			watch("b")
			p.wants("with b again", "n2: a b")
			p.has("a")
			p.wants("after the second response", "n3: a b", "n3: a", "n3: a b")
		})
	})
	t.Run("and answers it", func(t *testing.T) {
		overCrossing(t, func(t *testing.T, p *sotwPeer, watch func(string) func(), stopB func()) {
			stopB()
			p.wants("without b", "n1: a")
			watch("b")
			p.wants("with b again", "n1: a b")
			p.has("b")
			p.wants("after the response", "n2: a b")
		})
	})
	t.Run("for another name", func(t *testing.T) {
		overCrossing(t, func(t *testing.T, p *sotwPeer, watch func(string) func(), stopB func()) {
			stopB()
			watch("c")
			p.wants("with c for b", "n1: a c")
			p.has("a")
			p.wants("after the response", "n2: a c")
		})
	})
	t.Run("that leaves nothing out", func(t *testing.T) {
		overCrossing(t, func(t *testing.T, p *sotwPeer, watch func(string) func(), _ func()) {
			watch("c")
			p.wants("with c", "n1: a b c")
			p.has("a")
			p.wants("after the response", "n2: a b c")
		})
	})
}

// A server that has no b goes on with other resources. It is not asked for ever, and
// the resource timer, which began with the first question, goes on.
func TestRepeatedQuestionsComeToAnEnd(t *testing.T) {
	overCrossing(t, func(t *testing.T, p *sotwPeer, _ func(string) func(), stopB func()) {
		stopB()
		p.wants("without b", "n1: a")
		e, _ := listen(t, p.k.c, p.typ, "b")
		p.wants("with b again", "n1: a b")
		timeout := p.k.channel.expiry.timeout
		for range ads.MaxRepeats {
			pass(timeout / (2 * ads.MaxRepeats))
			p.has("a")
			if got := len(p.requests()); got != 3 {
				t.Fatalf("%d requests after a response, want 3", got)
			}
		}
		p.has("a")
		p.wants("after the last question", fmt.Sprintf("n%d: a b", p.nonce))
		e.silent()
		pass(timeout / 2)
		e.fault(KindDoesNotExist)
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
		d.says() // which may have crossed the request
		prod.silent()
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
	t.Run("by name", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			p := &sotwPeer{t: t, k: newCore(t, "fail_on_data_errors"), typ: newTestTypes().clusters}
			watch := func(name string) (e *ear, stop func()) { return listen(t, p.k.c, p.typ, name) }
			watch("kept")
			_, stopA := watch("a")
			p.wants("at first", ": a kept")
			_, stopB := watch("b")
			stopA()
			p.wants("after the move", ": b kept")
			a, _ := watch("a")
			stopB()
			p.wants("after the move back", ": a kept")
			p.has("a", "kept")
			a.cluster("")
			p.requests()
			p.has("b", "kept")
			a.silent()
			p.wants("after the full state of the other list", "n2: a kept", "n2: a kept")
			p.has("a", "kept")
			p.requests()
			a.silent()
			p.has("kept")
			a.silent()
			p.requests()
			p.has("kept") // which cannot have crossed any more
			a.fault(KindDoesNotExist)
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
