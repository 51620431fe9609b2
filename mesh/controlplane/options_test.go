package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// byPrefix lets clients have names that begin with the ID of their node, or have it as a folder.
func byPrefix(ctx context.Context, node *corepb.Node, _, name string) error {
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("content-type")) == 0 {
		return status.Error(codes.Internal, "the context is not the stream's")
	}
	if id := node.GetId(); strings.HasPrefix(name, "fence") || strings.HasPrefix(name, id+"-") || strings.Contains(name, "/"+id+"/") {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "not for %s", node.GetId())
}

func TestOptions_StoreFor(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		stores := map[string]*controlplane.Store{"a": controlplane.NewStore(), "b": controlplane.NewStore()}
		ended := make(chan string, 1)
		s := startServer(t, controlplane.Options{
			StoreFor: func(ctx context.Context, node *corepb.Node) (*controlplane.Store, error) {
				if node.GetId() == "stranger" {
					return nil, status.Error(codes.PermissionDenied, "who are you?")
				}
				if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("content-type")) == 0 {
					return nil, status.Error(codes.Internal, "the context is not the stream's")
				}
				if node.GetId() == "a" {
					context.AfterFunc(ctx, func() { ended <- "a" })
				}
				return stores[node.GetId()], nil
			},
		})
		for id, store := range stores {
			if _, err := store.Update(func(tx *controlplane.Tx) { tx.Set(cluster("of-" + id)) }); err != nil {
				t.Fatal(err)
			}
		}
		s.set(t, cluster("of-all"))
		for node, want := range map[string]string{"a": "of-a", "b": "of-b", "other": "of-all"} {
			c := open(s)
			c.identify(node, cds)
			c.want(cds, want)
			xdstest.NoError(t, c.closeSend())
		}
		receive(t, ended)
		c := open(s)
		c.identify("stranger", cds)
		if err := c.end(); status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != "who are you?" {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// The handler is called once per NACK, with the client's message, and never for an ACK.
func TestNACKHandlerIsCalledForEachRejection(t *testing.T) {
	t.Parallel()
	sent := make(chan controlplane.Rejection, 10)
	s := startServer(t, controlplane.Options{OnNACK: func(r controlplane.Rejection) { sent <- r }})
	s.set(t, xdsmsg.RouteConfig("a", "*"))

	// An error that answers no response is no NACK.
	sotw := s.open(t)
	sotw.request(request{typeURL: rds, names: []string{"a"}, rejected: "too early"})
	response := sotw.want(rds, "a")
	sotw.request(request{typeURL: rds, names: []string{"a"}, rejected: "no nonce"})
	// The handler gets the whole message, of which ClientStatus keeps 4 KiB.
	bad := strings.Repeat("bad domain; ", 1000)
	sotw.nack(response, bad, "a")
	if kept := sotw.typeStatus(s.control, rds).NACK.Err.Message(); len(kept) > 5<<10 || !strings.Contains(kept, fmt.Sprint(len(bad), " bytes")) {
		t.Errorf("of the message %q is kept, want about 4 KiB and its length", kept)
	}
	delta := s.openDelta(t)
	delta.subscribe(rds, "a")
	deltaResponse := delta.want(rds, "a")
	delta.nack(deltaResponse, "worse domain")
	delta.fence()

	for _, want := range []struct{ message, nonce string }{
		{bad, response.nonce}, {"worse domain", deltaResponse.nonce},
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
			t.Fatalf("the handler was not called for %q", want.message)
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
func TestACKHandlerIsCalledWithTheTimeOfTheChange(t *testing.T) {
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
	sotw.request(request{typeURL: rds, names: []string{"a"}, answers: reply{nonce: response.nonce}}) // the version of an ACK is missing
	if got := sotw.typeStatus(s.control, rds).Reply; got != controlplane.ReplyAwaited || len(acks) > 0 {
		t.Errorf("the reply is %v before the ACK", got)
	}
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
	sotw.nack(response, "bad", "a")
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
	delta.nack(delta.want(rds, "a"), "bad")
	delta.fence()
	if refusing(controlplane.ProtocolSotW) || !refusing(controlplane.ProtocolDelta) {
		t.Error("the client that has accepted the next change should refuse nothing, and the other one something")
	}

	for _, c := range s.control.Clients() {
		if sent := c.Types[len(c.Types)-1].SentAt; c.Since.Before(began) || sent.Before(c.Since) || sent.After(time.Now()) {
			t.Errorf("a stream since %v was sent something at %v", c.Since, sent)
		}
	}
}

// The text of an absence may name other resources, but none that the client may not have.
func TestOptions_Absence(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{
		Authorize: byPrefix, NotFoundErrors: true,
		Absence: func(typeURL, name string, allowed func(string) bool) string {
			if name == "a-plain" {
				return ""
			}
			return fmt.Sprintf("no %s: a-1 %t, b-1 %t", name, allowed("a-1"), allowed("b-1"))
		},
	})
	s.set(t, xdsmsg.RouteConfig("a-1", "*"), xdsmsg.RouteConfig("b-1", "*"))
	for node, want := range map[string]string{"a": "no a-2: a-1 true, b-1 false", "b": "no b-2: a-1 false, b-1 true"} {
		c := s.open(t)
		c.identify(node, rds, node+"-2")
		if got := c.want(rds, "!"+node+"-2: NotFound").errors[0].GetErrorDetail().GetMessage(); got != want {
			t.Errorf("%s is told %q, want %q", node, got, want)
		}
	}
	// A delta client is told so beside the removal, of a name that it has asked for, by whatever kind of name.
	d := s.openDelta(t)
	d.identify("a", rds, "a-1", "a-2", "a-plain")
	told := d.want(rds, "a-1", "-a-2", "-a-plain", "!a-2: NotFound")
	if got := told.errors[0].GetErrorDetail().GetMessage(); got != "no a-2: a-1 true, b-1 false" {
		t.Errorf("a delta client is told %q", got)
	}
	d.ack(told)
	s.delete(t, rds, "a-1")
	d.want(rds, "-a-1", "!a-1: NotFound")
	c := s.open(t)
	c.identify("a", rds, "a-plain")
	if got := c.want(rds, "!a-plain: NotFound").errors[0].GetErrorDetail().GetMessage(); !strings.Contains(got, "has no resource") {
		t.Errorf("an empty text gives %q, want the server's own", got)
	}
}

// The text is asked for once for each name, however small the responses are.
func TestOptions_AbsenceIsAskedForOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	s := startServer(t, controlplane.Options{MaxResponseSize: 1, Absence: func(_, name string, _ func(string) bool) string {
		mu.Lock()
		defer mu.Unlock()
		asked[name]++
		return "no " + name
	}})
	d := s.openDelta(t)
	d.subscribe(rds, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		d.want(rds, "-"+name, "!"+name+": NotFound")
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1}, asked); diff != "" {
		t.Errorf("asked for texts (-want +got):\n%s", diff)
	}
}
