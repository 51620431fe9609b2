package controlplane_test

import (
	"strings"
	"testing"

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
