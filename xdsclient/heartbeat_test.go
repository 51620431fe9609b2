package xdsclient

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// Envoy, xDS protocol, "TTL": a resource without a body and with a name and a
// version only says that the server still has it.
func TestHeartbeats(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		s := server.askedDelta()
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("b", "1", nil))
		s.expect(deltaWant{typ: types.clusters, nonce: "n1"})
		a.cluster("x")
		b.silent() // nothing is known of it, and its timer goes on
		s.send(types.clusters, "n2", has("a", "1", nil), has("unasked", "1", nil))
		s.expect(deltaWant{typ: types.clusters, nonce: "n2"})
		a.silent()
		// A heartbeat of another version, as after a NACK, says nothing of the one
		// in use; one of the version in use ends the error.
		s.send(types.clusters, "n3", has("a", "2", badCluster("a", "no")))
		a.ambient(KindInvalid)
		s.send(types.clusters, "n4", has("a", "2", nil))
		a.silent()
		s.send(types.clusters, "n5", has("a", "1", nil))
		a.cluster("x")
		b.fault(KindTimeout)
		// Without a version it is no heartbeat.
		s.send(types.clusters, "n6", has("a", "", nil))
		a.ambient(KindInvalid)
	})
}

// In SotW a heartbeat is a resource that is there.
func TestHeartbeatInSotW(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		s := server.stream()
		s.send(types.clusters, "1", "n1", wrap(t, "a", cluster("a", "x")), wrap(t, "b", cluster("b", "x")))
		allHear("x", a, b)
		s.send(types.clusters, "2", "n2", heartbeat("a", "7"))
		b.ambient(KindDoesNotExist)
		a.silent()
		if c.Stats().Rejected != 0 {
			t.Error("a response was rejected")
		}
	})
}

func heartbeat(name, version string) proto.Message {
	return deltaResponse(&ResourceType{}, "", has(name, version, nil)).GetResources()[0]
}
