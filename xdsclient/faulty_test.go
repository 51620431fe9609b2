package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// What a server may send in place of a good resource, and the answer that it
// gets. One good resource goes along, and must be used (gRFC A46). Delta has wrappers only.
func TestFaultyResources(t *testing.T) {
	const (
		value   = "value"
		both    = "value and ambient" // a watcher may get both in one go
		invalid = "invalid"

		wrongType   = `its type is "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`
		inWrapper   = `its type is "` + wrapperType + `" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`
		noResource  = `there is no resource in the google.protobuf.Any`
		panicked    = `the decoder panicked: decoder out of order`
		secondOfOne = `the response has more than one resource of this name`
	)
	rawAny := func(value ...byte) proto.Message { return &anypb.Any{TypeUrl: wrapperType, Value: value} }
	version := func(version string, m proto.Message) proto.Message {
		return &discoveryv3.Resource{Name: "a", Version: version, Resource: pack(t, m)}
	}
	for name, test := range map[string]struct {
		resources []proto.Message
		// more is what else a delta response has.
		more []part
		// nack is the part of the NACK behind the count; empty for an ACK.
		nack string
		// a is what the watcher of cluster a gets; empty for nothing.
		a string
	}{
		"bare":                       {resources: []proto.Message{cluster("a", "")}, a: value},
		"wrapped":                    {resources: []proto.Message{wrap(t, "a", cluster("a", ""))}, a: value},
		"wrapped, named by itself":   {resources: []proto.Message{wrap(t, "", cluster("a", ""))}, a: value},
		"wrapped, named by wrapper":  {resources: []proto.Message{wrap(t, "a", cluster("", "x"))}, a: value},
		"wrapped, without a version": {resources: []proto.Message{version("", cluster("a", ""))}, a: value},
		"wrapped under another name": {
			resources: []proto.Message{wrap(t, "a", cluster("b", ""))},
			nack:      `Cluster "a": it calls itself "b", other than its wrapper`,
			a:         invalid,
		},
		"bare without a name":         {resources: []proto.Message{cluster("", "x")}, nack: `resources[1]: it has no name`},
		"wrapped without a name":      {resources: []proto.Message{wrap(t, "", cluster("", "x"))}, nack: `resources[1]: it has no name`},
		"empty Any":                   {resources: []proto.Message{&anypb.Any{}}, nack: `resources[1]: ` + noResource},
		"empty Any in a wrapper":      {resources: []proto.Message{wrap(t, "a", &anypb.Any{})}, nack: `Cluster "a": ` + noResource, a: invalid},
		"wrapper without a resource":  {resources: []proto.Message{&discoveryv3.Resource{Name: "a"}}, nack: `Cluster "a": ` + noResource, a: invalid},
		"empty wrapper":               {resources: []proto.Message{&discoveryv3.Resource{}}, nack: `resources[1]: ` + noResource},
		"wrong type":                  {resources: []proto.Message{endpoints("a")}, nack: `resources[1]: ` + wrongType},
		"wrong type in a wrapper":     {resources: []proto.Message{wrap(t, "a", endpoints("a"))}, nack: `Cluster "a": ` + wrongType, a: invalid},
		"wrapper in a wrapper":        {resources: []proto.Message{wrap(t, "a", wrap(t, "a", cluster("a", "")))}, nack: `Cluster "a": ` + inWrapper, a: invalid},
		"garbled wrapper":             {resources: []proto.Message{rawAny(0xff)}, nack: `resources[1]: malformed envoy.service.discovery.v3.Resource: unexpected EOF`},
		"name that is not UTF-8":      {resources: []proto.Message{rawAny(3<<3|2, 1, 0xff)}, nack: `resources[1]: name: not valid UTF-8`},
		"decoder panics":              {resources: []proto.Message{cluster("a", "panic")}, nack: `Cluster "a": ` + panicked, a: invalid},
		"decoder panics in a wrapper": {resources: []proto.Message{wrap(t, "a", cluster("a", "panic"))}, nack: `Cluster "a": ` + panicked, a: invalid},
		"decoder makes nothing of it": {resources: []proto.Message{cluster("a", "nothing")}, nack: `Cluster "a": the decoder made nothing of it`, a: invalid},
		"fault that is not UTF-8":     {resources: []proto.Message{cluster("a", "garbled")}, nack: "Cluster \"a\": it has \uFFFD in it", a: invalid},
		"twice, the first counts":     {resources: []proto.Message{cluster("a", "first"), cluster("a", "second")}, nack: `Cluster "a": ` + secondOfOne, a: both},
		"twice, wrapped":              {resources: []proto.Message{version("1", cluster("a", "first")), version("2", cluster("a", "second"))}, nack: `Cluster "a": ` + secondOfOne, a: both},
		"twice the same":              {resources: []proto.Message{cluster("a", "x"), wrap(t, "a", cluster("a", "x"))}, nack: `Cluster "a": ` + secondOfOne, a: both},
		"not watched":                 {resources: []proto.Message{cluster("u", ""), badCluster("v", "x"), wrap(t, "w", cluster("w", "panic")), cluster("a", "")}, a: value},
		"wrapped, not watched": {
			resources: []proto.Message{wrap(t, "u", cluster("u", "")), wrap(t, "v", badCluster("v", "x")), wrap(t, "w", endpoints("w"))},
			more:      []part{lacks("x"), fails("y", codes.Internal, "z")},
		},
		"error without a name": {more: []part{fails("", codes.NotFound, "which?")}, nack: `resource_errors[0]: it names no resource`},
	} {
		wrapped := true
		parts := []part{has("good", "1", cluster("good", "1"))}
		for _, m := range test.resources {
			w, ok := m.(*discoveryv3.Resource)
			wrapped = wrapped && ok
			parts = append(parts, func(r *discoveryv3.DeltaDiscoveryResponse) { r.Resources = append(r.Resources, w) })
		}
		check := func(v *protocolTest, send func(s peer)) {
			good, a := v.listen("good"), v.listen("a")
			s := v.connect()
			send(s)
			good.cluster("1")
			text := ""
			if test.nack != "" {
				text = fmt.Sprintf("1 of %d Cluster resources are invalid; %s", len(parts)+len(test.more), test.nack)
			}
			// The protobuf runtime varies its white space on purpose.
			if got := strings.ReplaceAll(s.answer(), "\u00a0", " "); got != text {
				v.t.Errorf("error_detail is\n%s\nwant\n%s", got, text)
			}
			if test.a == value || test.a == both {
				a.value()
			}
			switch test.a {
			case both:
				a.ambient(KindInvalid)
			case invalid:
				a.fault(KindInvalid)
			}
			a.silent()
			s.quiet()
		}
		if test.more == nil {
			t.Run(name+"/SotW", func(t *testing.T) {
				overProtocol(t, false, nil, func(v *protocolTest) {
					check(v, func(s peer) {
						s.(*scriptStream).send(v.types.clusters, "1", "n1", append([]proto.Message{cluster("good", "1")}, test.resources...)...)
					})
				})
			})
		}
		if wrapped {
			t.Run(name+"/delta", func(t *testing.T) {
				overProtocol(t, true, nil, func(v *protocolTest) {
					check(v, func(s peer) { s.(*deltaStream).send(v.types.clusters, "n1", append(parts, test.more...)...) })
				})
			})
		}
	}
}
