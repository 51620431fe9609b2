package xdsclient

import (
	"testing"
	"testing/synctest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/dynxds/dynxds/testutils"
)

// peer is one stream at the server, of either protocol.
type peer interface {
	// say sends a response with clusters and errors.
	say(typ *ResourceType, version string, clusters []*clusterv3.Cluster, errors ...*discoveryv3.ResourceError)
	// answer waits for the answer to a response and returns the text of the
	// NACK, if it is one.
	answer() string
	// quiet checks that no request is on its way.
	quiet()
	breakOff()
}

func (s *scriptStream) say(typ *ResourceType, version string, clusters []*clusterv3.Cluster, errors ...*discoveryv3.ResourceError) {
	s.t.Helper()
	r := &discoveryv3.DiscoveryResponse{TypeUrl: typ.TypeURL, VersionInfo: version, Nonce: "n" + version, ResourceErrors: errors}
	for _, c := range clusters {
		r.Resources = append(r.Resources, pack(s.t, c))
	}
	s.respond(r)
}

func (s *scriptStream) answer() string {
	s.t.Helper()
	for {
		if r := s.request(); r.GetResponseNonce() != "" {
			return r.GetErrorDetail().GetMessage()
		}
	}
}

func (s *deltaStream) say(typ *ResourceType, version string, clusters []*clusterv3.Cluster, errors ...*discoveryv3.ResourceError) {
	s.t.Helper()
	var parts []part
	for _, c := range clusters {
		parts = append(parts, has(c.GetName(), version, c))
	}
	s.send(typ, "n"+version, append(parts, func(r *discoveryv3.DeltaDiscoveryResponse) { r.ResourceErrors = errors })...)
}

func (s *deltaStream) answer() string {
	s.t.Helper()
	for {
		if r := s.request(); r.GetResponseNonce() != "" {
			return r.GetErrorDetail().GetMessage()
		}
	}
}

// protocolTest is a test that runs over each protocol.
type protocolTest struct {
	t      *testing.T
	types  *testTypes
	server *script
	c      *XDSClient
	delta  bool
}

// connect waits for the next stream, and for what the client has to say.
func (v *protocolTest) connect() peer {
	v.t.Helper()
	if v.delta {
		return v.server.delta()
	}
	s := v.server.stream()
	synctest.Wait()
	return s
}

func (v *protocolTest) listen(name string) *ear {
	v.t.Helper()
	e, _ := listen(v.t, v.c, v.types.clusters, name)
	return e
}

// overEachProtocol runs a test over each protocol, with a server of the given
// features.
func overEachProtocol(t *testing.T, features []string, f func(v *protocolTest)) {
	t.Helper()
	for _, variant := range []string{"SotW", "delta"} {
		t.Run(variant, func(t *testing.T) { overProtocol(t, variant == "delta", features, f) })
	}
}

// overProtocol runs a test over one protocol.
func overProtocol(t *testing.T, delta bool, features []string, f func(v *protocolTest)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		v := &protocolTest{t: t, types: newTestTypes(), server: newScript(t), delta: delta}
		if delta {
			v.c = v.server.deltaClient(features...)
		} else {
			v.c = v.server.client(testutils.ServerFeatures(features...))
		}
		f(v)
	})
}

func clusters(list ...*clusterv3.Cluster) []*clusterv3.Cluster { return list }
