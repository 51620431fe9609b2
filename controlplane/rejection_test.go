package controlplane_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// The handler is called once per NACK, with the client's message, and never for an ACK.
func TestNACKHandlerIsCalledForEachRejection(t *testing.T) {
	t.Parallel()
	sent := make(chan controlplane.Rejection, 10)
	s := startServer(t, controlplane.Options{OnNACK: func(r controlplane.Rejection) { sent <- r }})
	s.set(t, xdsmsg.RouteConfig("a", "*"))

	sotw := s.open(t)
	sotw.subscribe(rds, "a")
	response := sotw.want(rds, "a")
	// The handler gets the whole message, of which ClientStatus keeps 4 KiB.
	bad := strings.Repeat("bad domain; ", 1000)
	sotw.nack(response, "", bad, "a")
	sotw.fence()
	delta := s.openDelta(t)
	delta.subscribe(rds, "a")
	deltaResponse := delta.want(rds, "a")
	delta.nack(deltaResponse, "worse domain")
	delta.fence()

	for _, want := range []struct{ message, nonce string }{
		{bad, response.GetNonce()}, {"worse domain", deltaResponse.GetNonce()},
	} {
		select {
		case r := <-sent:
			if r.TypeURL != rds || r.NACK.Nonce != want.nonce || r.NACK.Err.Message() != want.message || r.NACK.Err.Code() != codes.InvalidArgument {
				t.Errorf("the handler was sent %+v, want %q for %s", r, want.message, want.nonce)
			}
			if r.Peer == nil || r.Stream == 0 {
				t.Errorf("the handler was not sent which client: %+v", r)
			}
		default:
			t.Fatalf("the handler was not sent of %q", want.message)
		}
	}
	select {
	case r := <-sent:
		t.Errorf("the handler was sent %+v too", r)
	default:
	}
}

// An ACK of a change has the time of the change, and one of the answer to a request has none. It is
// reported once, however often its nonce is repeated.
func TestACKHandlerIsToldOfChanges(t *testing.T) {
	t.Parallel()
	acks := make(chan time.Time, 10)
	s := startServer(t, controlplane.Options{OnACK: func(typeURL string, changed time.Time) {
		if typeURL == rds {
			acks <- changed
		}
	}})
	s.set(t, xdsmsg.RouteConfig("a", "*"))
	began := time.Now()
	sotw, delta := s.open(t), s.openDelta(t)
	sotw.subscribe(rds, "a")
	response := sotw.want(rds, "a")
	sotw.ack(response, "a")
	sotw.ack(response, "a", "b") // another subscription with the same nonce
	sotw.fence()
	delta.subscribe(rds, "a")
	delta.ack(delta.want(rds, "a"))
	delta.fence()
	want := func(isChange bool) {
		t.Helper()
		select {
		case changed := <-acks:
			if changed.IsZero() == isChange || isChange && (changed.Before(began) || changed.After(time.Now())) {
				t.Errorf("an ACK of what changed at %v, since %v; want a change: %v", changed, began, isChange)
			}
		default:
			t.Error("the handler was not called")
		}
	}
	want(false)
	want(false)

	s.set(t, xdsmsg.RouteConfig("a", "new.example.com"))
	response = sotw.want(rds, "a")
	deltaResponse := delta.want(rds, "a")
	sotw.nack(response, "", "bad", "a")
	delta.ack(deltaResponse)
	sotw.fence()
	delta.fence()
	want(true)
	if len(acks) > 0 {
		t.Errorf("the handler was called for what changed at %v too", <-acks)
	}

	// What the client refused is known until it accepts something, not only until it is sent something.
	refusing := func(p controlplane.Protocol) bool {
		all := s.control.Clients()
		return all[slices.IndexFunc(all, func(c controlplane.ClientStatus) bool { return c.Protocol == p })].Types[0].Refusing
	}
	if !refusing(controlplane.ProtocolSotW) || refusing(controlplane.ProtocolDelta) {
		t.Error("only the client that rejected the change should refuse something")
	}
	s.set(t, xdsmsg.RouteConfig("a", "newer.example.com"))
	response = sotw.want(rds, "a")
	if !refusing(controlplane.ProtocolSotW) {
		t.Error("the client refuses nothing before it has accepted the next change")
	}
	sotw.ack(response, "a")
	sotw.fence()
	if refusing(controlplane.ProtocolSotW) {
		t.Error("the client refuses something although it has accepted the next change")
	}

	for _, c := range s.control.Clients() {
		if sent := c.Types[len(c.Types)-1].SentAt; c.Since.Before(began) || sent.Before(c.Since) || sent.After(time.Now()) {
			t.Errorf("a stream since %v was sent something at %v", c.Since, sent)
		}
	}
}
