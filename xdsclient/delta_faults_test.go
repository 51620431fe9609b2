package xdsclient

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

// What a server may send in place of a good resource in the incremental variant,
// and what it hears of it.
func TestDeltaFaultyResources(t *testing.T) {
	types := newTestTypes()
	for name, tc := range map[string]struct {
		parts []part
		nack  string
		// a is what the watcher of cluster a hears; empty for nothing.
		a string
	}{
		"good":                 {parts: []part{has("a", "1", cluster("a", ""))}, a: "value"},
		"named by the wrapper": {parts: []part{has("a", "1", cluster("", "x"))}, a: "value"},
		"named by itself":      {parts: []part{has("", "1", cluster("a", ""))}, a: "value"},
		"without a version":    {parts: []part{has("a", "", cluster("a", ""))}, a: "value"},
		"without a name": {
			parts: []part{has("", "1", cluster("", "x"))},
			nack:  `; resources[1]: it has no name`,
		},
		"another name": {
			parts: []part{has("a", "1", cluster("b", ""))},
			nack:  `; Cluster "a": it calls itself "b", other than its wrapper`,
			a:     "invalid",
		},
		"wrong type": {
			parts: []part{has("a", "1", endpoints("a"))},
			nack:  `; Cluster "a": its type is "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`,
			a:     "invalid",
		},
		"wrapped again": {
			parts: []part{has("a", "1", wrap(t, "a", cluster("a", "")))},
			nack:  `; Cluster "a": its type is "` + wrapperType + `" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`,
			a:     "invalid",
		},
		"empty Any": {
			parts: []part{has("a", "1", &anypb.Any{})},
			nack:  `; Cluster "a": there is no resource in the google.protobuf.Any`,
			a:     "invalid",
		},
		"empty": {
			parts: []part{has("", "", nil)},
			nack:  `; resources[1]: there is no resource in the google.protobuf.Any`,
		},
		"decoder panics": {
			parts: []part{has("a", "1", cluster("a", "panic"))},
			nack:  `; Cluster "a": the decoder panicked: decoder out of order`,
			a:     "invalid",
		},
		"twice, the first counts": {
			parts: []part{has("a", "1", cluster("a", "first")), has("a", "2", cluster("a", "second"))},
			nack:  `; Cluster "a": the response has more than one resource of this name`,
			a:     "value and ambient",
		},
		"nobody asked": {
			parts: []part{has("u", "1", cluster("u", "")), has("v", "1", badCluster("v", "x")), has("w", "1", endpoints("w")), lacks("x"), fails("y", codes.Internal, "z")},
		},
		"error without a name": {
			parts: []part{fails("", codes.NotFound, "which?")},
			nack:  `; resource_errors[0]: it names no resource`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := newScript(t)
				c := server.deltaClient()
				good, _ := listen(t, c, types.clusters, "good")
				a, _ := listen(t, c, types.clusters, "a")
				s := server.delta()
				s.request()
				s.send(types.clusters, "n1", append([]part{has("good", "1", cluster("good", "1"))}, tc.parts...)...)
				text := ""
				if tc.nack != "" {
					text = fmt.Sprintf("1 of %d Cluster resources are invalid%s", len(tc.parts)+1, tc.nack)
				}
				s.expect(deltaWant{typ: types.clusters, nonce: "n1", nack: text})
				good.cluster("1")
				switch tc.a {
				case "value":
					a.value()
				case "value and ambient":
					a.value()
					a.ambient(KindInvalid)
				case "invalid":
					a.fault(KindInvalid)
				}
				a.silent()
				s.quiet()
			})
		})
	}
}
