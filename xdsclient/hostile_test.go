package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// What a server may send in place of a good resource, and what it hears of it.
// One good resource goes along, and must be used (gRFC A46).
func TestFaultyResources(t *testing.T) {
	types := newTestTypes()
	rawAny := func(typeURL string, value []byte) proto.Message {
		return &anypb.Any{TypeUrl: typeURL, Value: value}
	}
	const wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"
	for name, tc := range map[string]struct {
		resources []proto.Message
		// nack is the part of the NACK behind the count; empty for an ACK.
		nack string
		// a is what the watcher of cluster a hears; empty for nothing.
		a string
	}{
		"wrapped": {
			resources: []proto.Message{wrap(t, "a", cluster("a", ""))},
			a:         "value",
		},
		"wrapped without a name": {
			resources: []proto.Message{wrap(t, "", cluster("a", ""))},
			a:         "value",
		},
		"wrapped, named by the wrapper alone": {
			resources: []proto.Message{wrap(t, "a", cluster("", "x"))},
			a:         "value",
		},
		"wrapped under another name": {
			resources: []proto.Message{wrap(t, "a", cluster("b", ""))},
			nack:      `; Cluster "a": it calls itself "b", other than its wrapper`,
			a:         "invalid",
		},
		"bare without a name": {
			resources: []proto.Message{cluster("", "x")},
			nack:      `; resources[1]: it has no name`,
		},
		"empty Any": {
			resources: []proto.Message{&anypb.Any{}},
			nack:      `; resources[1]: there is no resource in the google.protobuf.Any`,
		},
		"empty wrapper": {
			resources: []proto.Message{&discoveryv3.Resource{Name: "a"}},
			nack:      `; Cluster "a": there is no resource in the google.protobuf.Any`,
			a:         "invalid",
		},
		"wrong type": {
			resources: []proto.Message{endpoints("a")},
			nack:      `; resources[1]: its type is "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`,
		},
		"wrong type in a wrapper": {
			resources: []proto.Message{wrap(t, "a", endpoints("a"))},
			nack:      `; Cluster "a": its type is "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`,
			a:         "invalid",
		},
		"wrapper in a wrapper": {
			resources: []proto.Message{wrap(t, "a", wrap(t, "a", cluster("a", "")))},
			nack:      `; Cluster "a": its type is "` + wrapper + `" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`,
			a:         "invalid",
		},
		"garbled wrapper": {
			resources: []proto.Message{rawAny(wrapper, []byte{0xff})},
			nack:      `; resources[1]: malformed envoy.service.discovery.v3.Resource: unexpected EOF`,
		},
		"wrapper whose name is not UTF-8": {
			resources: []proto.Message{rawAny(wrapper, []byte{3<<3 | 2, 1, 0xff})},
			nack:      `; resources[1]: name: not valid UTF-8`,
		},
		"decoder panics": {
			resources: []proto.Message{cluster("a", "panic")},
			nack:      `; resources[1]: the decoder panicked: decoder out of order`,
		},
		"decoder panics in a wrapper": {
			resources: []proto.Message{wrap(t, "a", cluster("a", "panic"))},
			nack:      `; Cluster "a": the decoder panicked: decoder out of order`,
			a:         "invalid",
		},
		"decoder makes nothing of it": {
			resources: []proto.Message{cluster("a", "nothing")},
			nack:      `; Cluster "a": the decoder made nothing of it`,
			a:         "invalid",
		},
		"fault that is not UTF-8": {
			resources: []proto.Message{cluster("a", "garbled")},
			nack:      "; Cluster \"a\": it has \uFFFD in it",
			a:         "invalid",
		},
		"twice, the first counts": {
			resources: []proto.Message{cluster("a", "first"), cluster("a", "second")},
			nack:      `; Cluster "a": the response has more than one resource of this name`,
			a:         "value and ambient",
		},
		"twice the same": {
			resources: []proto.Message{cluster("a", "x"), wrap(t, "a", cluster("a", "x"))},
			nack:      `; Cluster "a": the response has more than one resource of this name`,
			a:         "value and ambient",
		},
		"nobody asked": {
			resources: []proto.Message{cluster("u", ""), badCluster("v", "x"), wrap(t, "w", cluster("w", "panic")), cluster("a", "")},
			a:         "value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := newScript(t)
				c := server.client()
				good, _ := listen(t, c, types.clusters, "good")
				a, _ := listen(t, c, types.clusters, "a")
				s := server.stream()
				s.request()
				s.send(types.clusters, "1", "n1", append([]proto.Message{cluster("good", "1")}, tc.resources...)...)
				answer := s.request()
				good.cluster("1")
				text := ""
				if tc.nack != "" {
					text = fmt.Sprintf("1 of %d Cluster resources are invalid%s", len(tc.resources)+1, tc.nack)
				}
				// The protobuf runtime varies its white space on purpose.
				if got := strings.ReplaceAll(answer.GetErrorDetail().GetMessage(), "\u00a0", " "); got != text {
					t.Errorf("error_detail is\n%s\nwant\n%s", got, text)
				}
				switch tc.a {
				case "value":
					a.value()
				case "value and ambient":
					// A watcher may hear of both in one go.
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

// A resource whose name cannot be read may be any of those that seem to be
// missing, so none is deleted.
func TestNamelessResourceDeletesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client()
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		s.send(types.clusters, "2", "n2", cluster("a", "panic"))
		a.silent()
	})
}

// Resources that nobody asked for are dropped, whatever their number.
func TestFloodOfUnaskedResources(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client()
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.request()
		const flood = 20_000
		var resources []proto.Message
		for i := range flood {
			resources = append(resources, wrap(t, fmt.Sprint("u", i), cluster("u", "")))
		}
		s.send(types.clusters, "1", "n1", append(resources, cluster("a", "1"))...)
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n1"})
		a.cluster("1")
		if got := c.Stats(); got.Unasked != flood || got.Decoded != 1 {
			t.Errorf("%d resources were dropped and %d decoded, want %d and 1", got.Unasked, got.Decoded, flood)
		}
	})
}

// A NACK lists the faults up to a bound, and says how many there are.
func TestNACKIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client()
		listen(t, c, types.clusters, "a")
		s := server.stream()
		s.request()
		var resources []proto.Message
		for range 1000 {
			resources = append(resources, badCluster("", strings.Repeat("x", 1000)))
		}
		s.send(types.clusters, "1", "n1", resources...)
		text := s.request().GetErrorDetail().GetMessage()
		if len(text) > maxFaultText+1000 {
			t.Errorf("the NACK has %d bytes", len(text))
		}
		if !strings.HasPrefix(text, "1000 of 1000 Cluster resources are invalid; resources[0]: ") || !strings.Contains(text, " more") {
			t.Errorf("the NACK is %.100s … %s", text, text[len(text)-100:])
		}
	})
}
