package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// "TP3" in these comments is the file TP3-error-propagation; quotes are its.

var (
	denied      = status.New(codes.PermissionDenied, "not yours")
	unavailable = status.New(codes.Unavailable, "backend of the control plane is down")
)

func (s *testServer) setError(t testing.TB, typeURL, name string, st *status.Status) {
	t.Helper()
	s.update(t, func(tx *controlplane.Tx) { tx.SetError(typeURL, name, st) })
}

// TP3, "Protocol Behavior": the status reaches the client as it is.
func TestErrors_StatusIsPassedOn(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	st, err := status.New(codes.PermissionDenied, "not yours").WithDetails(wrapperspb.String("ask the owner"))
	xdstest.NoError(t, err)
	s.setError(t, rds, "r", st)
	old, delta := s.open(t), s.openDelta(t)
	old.subscribe(rds, "r")
	delta.subscribe(rds, "r")
	for protocol, errs := range map[string][]*discoverypb.ResourceError{
		"SotW": old.next().errors, "delta": delta.next().errors,
	} {
		if len(errs) != 1 || errs[0].GetResourceName().GetName() != "r" || !proto.Equal(errs[0].GetErrorDetail(), st.Proto()) {
			t.Errorf("%s: %v", protocol, errs)
		}
	}
}

// TP3, "Protocol Behavior": "The xDS Management server is only expected to
// return the error message once rather than throughout for future responses."
func TestErrors_AreSentOncePerSubscriber(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		for _, typeURL := range []string{rds, cds} {
			s := startServer(t)
			s.set(t, xdsmsg.RouteConfig("a", "*"), cluster("a"))
			s.setError(t, typeURL, "e", denied)
			c, other := open(s), open(s)
			c.subscribe(typeURL, "a", "e")
			c.ack(c.want(typeURL, "!e: PermissionDenied", "a"), "a", "e")
			s.set(t, xdsmsg.RouteConfig("a", "new"), changed("a", "new"))
			c.ack(c.want(typeURL, "a"), "a", "e")
			s.setError(t, typeURL, "e", status.New(codes.PermissionDenied, "not yours")) // the same
			c.fence()
			other.subscribe(typeURL, "a", "e")
			other.want(typeURL, "!e: PermissionDenied", "a")
		}
	})
}

// TP3, "Protocol Behavior": "until either a new error message is returned or
// the resource is returned".
func TestErrors_EndWithANewErrorOrTheResource(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) *client) {
		for _, typeURL := range []string{rds, cds} {
			s := startServer(t)
			s.setError(t, typeURL, "e", denied)
			c := open(s)
			c.subscribe(typeURL, "e")
			c.want(typeURL, "!e: PermissionDenied")
			s.setError(t, typeURL, "e", unavailable)
			c.want(typeURL, "!e: Unavailable")
			s.set(t, xdsmsg.RouteConfig("e", "*"), cluster("e"))
			c.want(typeURL, "e")
			s.setError(t, typeURL, "e", unavailable) // the same, but not since the resource
			c.want(typeURL, "!e: Unavailable")
			if protocol == controlplane.ProtocolDelta {
				c.subscribe(typeURL, "e") // again
				c.want(typeURL, "!e: Unavailable")
			}
			s.set(t, xdsmsg.RouteConfig("other", "*"), cluster("other"))
			c.drop(typeURL, []string{"other"}, "e")
			if protocol == controlplane.ProtocolSotW {
				c.want(typeURL, "other")
			}
			c.fence()
			c.subscribe(typeURL, "e")
			c.want(typeURL, "!e: Unavailable")
		}
	})
}

// TP3, "Protocol Behavior": "The set of resources with errors and the set of
// valid resources must not intersect."
func TestErrors_StandInPlaceOfTheResource(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	version := s.set(t, cluster("a"), cluster("b"))
	s.setError(t, cds, "a", denied)
	if s.store.Get(cds, "a") != nil || !slices.Equal(names(s.store.Resources(cds)), []string{"b"}) {
		t.Errorf("resources beside the error: %q", names(s.store.Resources(cds)))
	}
	if got := s.store.Error(cds, "a"); got.Code() != codes.PermissionDenied {
		t.Errorf("error: %v", got)
	}
	if got := s.store.Version(); got != version+1 {
		t.Errorf("version %d, want %d", got, version+1)
	}
	s.set(t, cluster("a"))
	if s.store.Error(cds, "a") != nil || s.store.Get(cds, "a") == nil {
		t.Error("the resource did not end the error")
	}
	s.setError(t, cds, "a", denied)
	s.delete(t, cds, "a")
	if s.store.Error(cds, "a") != nil || s.store.Get(cds, "a") != nil {
		t.Error("the error was not deleted")
	}
	s.setError(t, cds, "a", denied)
	s.update(t, func(tx *controlplane.Tx) { tx.DeleteAll(cds) })
	if s.store.Error(cds, "a") != nil || len(s.store.Resources(cds)) > 0 {
		t.Error("DeleteAll left something")
	}
}

// TP3, "Protocol Behavior": "it must still include all of the subscribed
// resources that it can return in that response".
func TestErrors_SotWListenerAndClusterResponsesStayComplete(t *testing.T) {
	t.Parallel()
	for _, typeURL := range []string{lds, cds} {
		t.Run(typeURL, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			for _, name := range []string{"a", "b", "c", "not-subscribed"} {
				s.set(t, cluster(name), xdsmsg.DefaultListener(name, "r"))
			}
			c := s.open(t)
			c.subscribe(typeURL, "a", "b", "c")
			c.want(typeURL, "a", "b", "c")
			s.setError(t, typeURL, "b", unavailable)
			c.want(typeURL, "a", "c", "!b: Unavailable")
			s.setError(t, typeURL, "not-subscribed", unavailable)
			c.fence()
		})
	}
}

// TP3, "Protocol Behavior": NOT_FOUND "will be interpreted to mean that the
// resource does not exist". In delta one of error and removal says so.
func TestErrors_DeltaSendsErrorOrRemovalNeverBoth(t *testing.T) {
	s, c := startDelta(t, cluster("a"))
	c.subscribe(cds, "a", "b")
	c.want(cds, "a", "-b")
	s.setError(t, cds, "a", status.New(codes.NotFound, "moved to the other mesh"))
	c.want(cds, "!a: NotFound")
	s.delete(t, cds, "a")
	c.want(cds, "-a")
	s.setError(t, cds, "b", status.New(codes.NotFound, "never was"))
	c.want(cds, "!b: NotFound")
	c.fence()
}

func TestErrors_DeletedErrorLeavesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.setError(t, rds, "e", denied)
	c, d := s.open(t), s.openDelta(t)
	c.subscribe(rds, "e")
	d.subscribe(rds, "e")
	c.want(rds, "!e: PermissionDenied")
	d.want(rds, "!e: PermissionDenied")
	s.delete(t, rds, "e")
	d.want(rds, "-e")
	d.fence()
	c.fence() // SotW has no way to say so
	s.setError(t, rds, "e", denied)
	d.want(rds, "!e: PermissionDenied")
	c.fence() // nothing ended the error for this client
}

// TP3, "Wildcard Subscriptions and Glob Collections", 1.
func TestErrors_OfAGlobCollection(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.set(t, clusters("foo/bar", "foo/gone")...)
	s.setError(t, cds, in("foo/*"), denied)
	c := s.openDelta(t)
	c.subscribe(cds, in("foo/*"), in("foo/bar"))
	c.want(cds, "!"+in("foo/*")+": PermissionDenied", in("foo/bar"))
	c.fence()

	// The collection comes back as a whole.
	s.delete(t, cds, in("foo/*"))
	c.want(cds, in("foo/bar"), in("foo/gone"))
	s.setError(t, cds, in("foo/*"), unavailable)
	c.want(cds, "!"+in("foo/*")+": Unavailable")
	// No name covers it now, nor does the collection.
	c.unsubscribe(cds, in("foo/bar"))
	c.want(cds, "-"+in("foo/bar"))
	c.subscribe(cds, in("foo/bar"))
	c.want(cds, in("foo/bar"))
	s.set(t, changedIn("foo/gone"))
	s.delete(t, cds, in("foo/gone"))
	c.fence()
	s.set(t, changedIn("foo/bar")) // by its own name
	c.want(cds, in("foo/bar"))
	s.delete(t, cds, in("foo/*"))
	c.want(cds, in("foo/bar"), "-"+in("foo/gone"))

	// Subscribers of the name only.
	s.setError(t, cds, in("foo/*"), denied)
	c.want(cds, "!"+in("foo/*")+": PermissionDenied")
	c.subscribe(cds, in("foo/*"))
	c.want(cds, "!"+in("foo/*")+": PermissionDenied")
	s.delete(t, cds, in("foo/bar"))
	c.want(cds, "-"+in("foo/bar"))
	s.delete(t, cds, in("foo/*"))
	c.want(cds, "-"+in("foo/*"))
}

// TP3, "Wildcard Subscriptions and Glob Collections", 2.
func TestErrors_OfAGlobsMember(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.setError(t, cds, in("foo/bar"), denied)
	c := s.openDelta(t)
	c.subscribe(cds, in("foo/*"))
	c.want(cds, "!"+in("foo/bar")+": PermissionDenied")
	s.set(t, clusters("foo/bar", "foo/baz")...)
	c.want(cds, in("foo/bar"), in("foo/baz"))
	s.setError(t, cds, in("foo/baz"), unavailable)
	c.want(cds, "!"+in("foo/baz")+": Unavailable")
	s.delete(t, cds, in("foo/baz"))
	c.want(cds, "-"+in("foo/baz"))
	c.fence()
}

// TP3, "Wildcard Subscriptions and Glob Collections": "This mechanism
// currently doesn't support wildcard subscriptions". The resource is absent.
func TestErrors_AreNotForWildcards(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.set(t, cluster("a"), cluster("b"), cluster("c"))
	c, d := s.open(t), s.openDelta(t)
	c.subscribe(cds, "*", "b")
	d.subscribe(cds, "*", "b")
	c.want(cds, "a", "b", "c")
	d.want(cds, "a", "b", "c")
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetError(cds, "a", denied)
		tx.SetError(cds, "b", denied) // asked for by name, too
		tx.SetError(cds, "new", denied)
		tx.SetError(cds, in("foo/*"), denied)
	})
	c.want(cds, "c", "!b: PermissionDenied")
	d.want(cds, "-a", "!b: PermissionDenied")
	d.unsubscribe(cds, "b")
	d.want(cds, "-b")
	d.fence()
	s.set(t, cluster("a"))
	c.want(cds, "a", "c")
	d.want(cds, "a")
}

// Envoy, "Eventual consistency considerations", for errors that end a resource.
func TestErrors_EndClustersAfterTheRoutesThatLeaveThem(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{NotFoundErrors: true})
	s.set(t, cluster("old"), xdsmsg.SimpleEndpoints("old", "127.0.0.1:1"), xdsmsg.SimpleEndpoints("stays", "127.0.0.1:1"), xdsmsg.RouteConfig("r", "*"))
	c, d := s.open(t), s.openDelta(t)
	for _, sub := range []struct {
		typeURL string
		names   []string
	}{{cds, []string{"old", "new"}}, {eds, []string{"old", "stays"}}, {rds, []string{"r"}}} {
		c.subscribe(sub.typeURL, sub.names...)
		c.next()
		d.subscribe(sub.typeURL, sub.names...)
		d.next()
	}
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetError(cds, "old", denied)
		tx.SetError(eds, "old", denied)
		tx.Set(cluster("new"), xdsmsg.SimpleEndpoints("stays", "127.0.0.1:2"), xdsmsg.RouteConfig("r", "new"))
	})
	c.want(cds, "new", "old")
	c.want(eds, "stays")
	c.want(rds, "r")
	c.want(cds, "new", "!old: PermissionDenied")
	c.want(eds, "!old: PermissionDenied")
	d.want(cds, "new")
	d.want(eds, "stays")
	d.want(rds, "r")
	d.want(cds, "!old: PermissionDenied")
	d.want(eds, "!old: PermissionDenied")

	s.update(t, func(tx *controlplane.Tx) {
		tx.Delete(cds, "new")
		tx.Delete(eds, "stays")
		tx.Set(xdsmsg.RouteConfig("r", "newer"))
	})
	c.want(rds, "r")
	c.want(cds, "!new: NotFound")
	c.want(eds, "!stays: NotFound")
}

// TP3, "Abstract": SotW can tell "explicitly" that a resource does not exist.
func TestErrors_NotFoundInSotW(t *testing.T) {
	t.Parallel()
	for _, typeURL := range []string{rds, cds} {
		t.Run(typeURL, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, controlplane.Options{NotFoundErrors: true})
			s.set(t, xdsmsg.RouteConfig("a", "*"), cluster("a"))
			c := s.open(t)
			c.subscribe(typeURL, "a", "b")
			resp := c.want(typeURL, "a", "!b: NotFound")
			if message := resp.errors[0].GetErrorDetail().GetMessage(); !strings.Contains(message, `"b"`) || !strings.Contains(message, typeURL) {
				t.Errorf("message: %s", message)
			}
			c.ack(resp, "a", "b")
			c.fence()
			s.set(t, xdsmsg.RouteConfig("b", "*"), cluster("b"))
			if typeURL == cds {
				c.want(cds, "a", "b")
			} else {
				c.want(rds, "b")
			}
			s.delete(t, typeURL, "a", "b")
			c.want(typeURL, "!a: NotFound", "!b: NotFound")
			s.setError(t, typeURL, "a", denied)
			c.want(typeURL, "!a: PermissionDenied")
			s.delete(t, typeURL, "a")
			c.want(typeURL, "!a: NotFound")
		})
	}
	t.Run("wildcard", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, controlplane.Options{NotFoundErrors: true})
		s.set(t, cluster("a"))
		c := s.open(t)
		c.subscribe(cds)
		c.want(cds, "a")
		s.delete(t, cds, "a")
		c.want(cds)
	})
	t.Run("delta says it by removed_resources", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, controlplane.Options{NotFoundErrors: true})
		c := s.openDelta(t)
		c.subscribe(cds, "a")
		c.want(cds, "-a")
	})
}

func TestErrors_Clients(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{NotFoundErrors: true})
	s.setError(t, rds, "e", denied)
	c := s.open(t)
	c.subscribe(rds, "e", "missing")
	c.want(rds, "!e: PermissionDenied", "!missing: NotFound")
	d := s.openDelta(t)
	d.subscribe(rds, "e", "missing")
	d.want(rds, "!e: PermissionDenied", "-missing")
	for i, want := range []string{
		"SotW e: PermissionDenied missing: NotFound",
		"delta e: PermissionDenied",
	} {
		got := s.control.Clients()[i]
		text := got.Protocol.String()
		for _, e := range got.Types[0].Errors {
			text += fmt.Sprintf(" %s: %v", e.Name, e.Err.Code())
		}
		if text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	s.set(t, xdsmsg.RouteConfig("e", "*"), xdsmsg.RouteConfig("missing", "*"))
	c.want(rds, "e", "missing")
	d.want(rds, "e", "missing")
	for _, got := range s.control.Clients() {
		if len(got.Types[0].Errors) != 0 {
			t.Errorf("%v: %+v", got.Protocol, got.Types[0].Errors)
		}
	}
}

func TestErrors_FaultyErrorsFailTheUpdate(t *testing.T) {
	t.Parallel()
	s := controlplane.NewStore()
	_, err := s.Update(func(tx *controlplane.Tx) {
		tx.SetError(rds, "nil", nil)
		tx.SetError(rds, "fine", status.New(codes.OK, ""))
		tx.SetError("", "", denied)
		tx.SetError(cds, "*", denied)
		tx.SetError(cds, "\xff", denied)
		tx.SetError(cds, "text", status.New(codes.Internal, "\xff"))
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`"nil": the status is OK`, `"fine": the status is OK`, "the type URL is empty", "the name is empty",
		`the name "*" is reserved`, `"\xff": the name is not valid UTF-8`, `"text": serializing the status`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %q:\n%v", want, err)
		}
	}
	if s.Version() != 0 {
		t.Errorf("version %d", s.Version())
	}
}
