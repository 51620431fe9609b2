package xdsclient

import (
	"errors"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// enveloped is a cluster with its envelope.
type enveloped struct {
	Envelope
	resource *anypb.Any
	time     time.Time
}

// envelopedClusters is the type of clusters for a program that passes them on.
func envelopedClusters() *ResourceType {
	return &ResourceType{
		TypeURL: newTestTypes().clusters.TypeURL, Name: "Cluster", FullStateInSotW: true,
		Decode: func(a *anypb.Any, opts DecodeOptions) (any, error) {
			m := new(clusterv3.Cluster)
			if err := a.UnmarshalTo(m); err != nil {
				return nil, err
			}
			return &enveloped{opts.Envelope, a, time.Now()}, nil
		},
		Renew: func(value any, ttl time.Duration) any {
			renewed := *value.(*enveloped)
			renewed.TTL, renewed.time = ttl, time.Now()
			return &renewed
		},
	}
}

// changed is the last resource of a response, with a change.
func changed(change func(*discoveryv3.Resource)) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) { change(r.Resources[len(r.Resources)-1]) }
}

// enveloped waits for a resource and checks its text.
func (e *ear) enveloped(text string) *enveloped {
	e.t.Helper()
	r, ok := e.value().(*enveloped)
	if !ok {
		e.t.Fatal("the watcher got a value of another type")
	}
	got := new(clusterv3.Cluster)
	if err := r.resource.UnmarshalTo(got); err != nil || got.GetAltStatName() != text {
		e.t.Fatalf("got cluster %v, %v, want one with %q", got, err, text)
	}
	return r
}

// A type with Renew gives its watchers resources with their envelopes, and tells them of each change
// of these: one of the version, of the cache control, and a TTL that is extended.
func TestEnvelopesOverDelta(t *testing.T) {
	overDelta(t, func(t *testing.T, _ *testTypes, server *script, c *XDSClient) {
		clusters := envelopedClusters()
		ear, _ := listen(t, c, clusters, "alias")
		s := server.delta()
		s.request()
		s.send(clusters, "n1", has("a", "1", cluster("a", "x"), "alias", "other"))
		r := ear.enveloped("x")
		if r.Name != "a" || r.Version != "1" || len(r.Aliases) != 2 || r.Aliases[0] != "alias" || r.TTL != 0 || r.DoNotCache || !r.Parameters.IsZero() {
			t.Errorf("got %+v", r)
		}
		if want := mustMarshal(t, cluster("a", "x")); string(r.resource.GetValue()) != string(want) {
			t.Errorf("got the bytes %q, want %q", r.resource.GetValue(), want)
		}
		s.send(clusters, "n2", has("a", "1", cluster("a", "x"), "alias", "other"))
		ear.silent()
		s.send(clusters, "n3", has("a", "2", cluster("a", "x"), "alias", "other"))
		if r := ear.enveloped("x"); r.Version != "2" {
			t.Errorf("got version %q, want 2", r.Version)
		}
		s.send(clusters, "n4", has("a", "2", cluster("a", "x"), "alias", "other"), changed(func(r *discoveryv3.Resource) {
			r.CacheControl = &discoveryv3.Resource_CacheControl{DoNotCache: true}
		}))
		if r := ear.enveloped("x"); !r.DoNotCache {
			t.Error("DoNotCache is false")
		}
		xdstest.Equal(t, "responses rejected", 0, c.Stats().Rejected)
	})
}

// A heartbeat extends a TTL, even if the response repeats the last one.
func TestEnvelopesHaveTTLs(t *testing.T) {
	overDelta(t, func(t *testing.T, _ *testTypes, server *script, c *XDSClient) {
		clusters := envelopedClusters()
		ear, _ := listen(t, c, clusters, "a")
		ttl := changed(func(r *discoveryv3.Resource) { r.Ttl = durationpb.New(1500 * time.Millisecond) })
		s := server.delta()
		s.request()
		s.send(clusters, "n1", has("a", "1", cluster("a", "x")), ttl)
		first := ear.enveloped("x")
		xdstest.Equal(t, "TTL", 1500*time.Millisecond, first.TTL)
		last := first.time
		for _, nonce := range []string{"n2", "n3", "n4"} {
			pass(time.Second)
			s.send(clusters, nonce, has("a", "1", nil), ttl)
			r := ear.enveloped("x")
			if r.TTL != first.TTL || r.time.Sub(last) != time.Second {
				t.Errorf("%s: got a TTL of %v from %v on, want %v from %v on", nonce, r.TTL, r.time, first.TTL, last.Add(time.Second))
			}
			last = r.time
		}
		s.send(clusters, "n5", has("a", "1", nil))
		if r := ear.enveloped("x"); r.TTL != 0 {
			t.Errorf("got a TTL of %v after one without, want none", r.TTL)
		}
	})
}

// A resource whose TTL has passed while its server was away is asked for again, although its bytes are
// known.
func TestEnvelopesExpireWhileTheServerIsAway(t *testing.T) {
	for _, test := range []struct {
		away time.Duration
		had  int // a server that was unreachable is asked for one resource again in any case
	}{{30 * time.Second, 1}, {2 * time.Minute, 0}} {
		t.Run(test.away.String(), func(t *testing.T) {
			overDelta(t, func(t *testing.T, _ *testTypes, server *script, c *XDSClient) {
				clusters := envelopedClusters()
				a, b := listenBoth(t, c, clusters, "a", "b")
				ttl := changed(func(r *discoveryv3.Resource) { r.Ttl = durationpb.New(time.Minute) })
				s := server.delta()
				s.request()
				s.send(clusters, "n1", has("a", "1", cluster("a", "x")), ttl, has("b", "1", cluster("b", "x")), ttl)
				s.request()
				a.enveloped("x")
				b.enveloped("x")
				server.stop()
				pass(test.away)
				server.start()
				had := 0
				for _, version := range server.delta().request().GetInitialResourceVersions() {
					had += len(version)
				}
				if had != test.had {
					t.Errorf("after %v the client says that it has %d resources, want %d", test.away, had, test.had)
				}
			})
		})
	}
}

// A server's error has its status, with the details.
func TestStatusOfAnError(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		detail, err := anypb.New(cluster("detail", ""))
		xdstest.NoError(t, err)
		sent := &statuspb.Status{Code: int32(codes.PermissionDenied), Message: "not for you", Details: []*anypb.Any{detail}}
		ear, missing := listenBoth(t, c, types.clusters, "a", "b")
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", lacks("b"), fails("a", codes.PermissionDenied, ""), func(r *discoveryv3.DeltaDiscoveryResponse) { r.ResourceErrors[0].ErrorDetail = sent })
		if got, ok := ear.fault(KindServer).Status(); !ok || !proto.Equal(got.Proto(), sent) {
			t.Errorf("got %v, %v, want %v", got, ok, sent)
		}
		if got, ok := missing.fault(KindDoesNotExist).Status(); ok || got.Code() != codes.NotFound || got.Message() == "" {
			t.Errorf("got %v, %v, want NOT_FOUND and a reason that the server did not send", got, ok)
		}
	})
}

// A relay whose management servers are unreachable says so by a detail of UNAVAILABLE. For its clients that is
// no answer, any more than if they could not reach a server themselves. Any other UNAVAILABLE is an answer.
func TestARelayWhoseServersAreUnreachable(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		st, sent := (&Error{Kind: KindUnreachable, Code: codes.Unavailable, Err: errors.New("away")}).Status()
		if sent || st.Code() != codes.Unavailable || st.Message() != "away" {
			t.Fatalf("got %v, %v, want UNAVAILABLE and the reason", st, sent)
		}
		denied := st.Proto()
		denied.Code = int32(codes.PermissionDenied)
		statuses := map[string]*statuspb.Status{"a": st.Proto(), "b": {Code: int32(codes.Unavailable), Message: "away"}, "c": denied}
		away, _ := listen(t, c, types.clusters, "a")
		plain, _ := listen(t, c, types.clusters, "b")
		other, _ := listen(t, c, types.clusters, "c")
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", fails("a", codes.Unavailable, ""), fails("b", codes.Unavailable, ""), fails("c", codes.Unavailable, ""), func(r *discoveryv3.DeltaDiscoveryResponse) {
			for _, e := range r.ResourceErrors {
				e.ErrorDetail = statuses[e.GetResourceName().GetName()]
			}
		})
		unreachable := away.fault(KindUnreachable)
		if got, ok := unreachable.Status(); !ok || !proto.Equal(got.Proto(), st.Proto()) || !unreachable.Transient {
			t.Errorf("got %v, %v, transient: %v; want %v", got, ok, unreachable.Transient, st)
		}
		if plain.fault(KindServer).Transient {
			t.Error("the server's answer is transient")
		}
		other.fault(KindServer)
	})
}
