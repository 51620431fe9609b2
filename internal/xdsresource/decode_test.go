package xdsresource

import (
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
)

var allTypes = []*xdsclient.ResourceType{ListenerType, RouteConfigurationType, ClusterType, EndpointsType}

func TestResourceTypesSayWhatTheTransportHasToKnow(t *testing.T) {
	t.Parallel()
	// The xDS protocol documentation, "Deleting Resources": only Listener and
	// Cluster responses carry the full state.
	for _, tc := range []struct {
		rt        *xdsclient.ResourceType
		message   proto.Message
		name      string
		fullState bool
	}{
		{ListenerType, &listenerpb.Listener{}, "Listener", true},
		{RouteConfigurationType, &routepb.RouteConfiguration{}, "RouteConfiguration", false},
		{ClusterType, &clusterpb.Cluster{}, "Cluster", true},
		{EndpointsType, &endpointpb.ClusterLoadAssignment{}, "ClusterLoadAssignment", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := xdsmsg.Any(tc.message).TypeUrl; got != tc.rt.TypeURL {
				t.Errorf("TypeURL = %q, want %q", tc.rt.TypeURL, got)
			}
			if tc.rt.Name != tc.name || tc.rt.FullStateInSotW != tc.fullState {
				t.Errorf("Name, FullStateInSotW = %q, %v, want %q, %v", tc.rt.Name, tc.rt.FullStateInSotW, tc.name, tc.fullState)
			}
		})
	}
}

func TestDecodeRejectsAnotherType(t *testing.T) {
	t.Parallel()
	for _, rt := range allTypes {
		for what, resource := range map[string]*anypb.Any{
			"other": {TypeUrl: "type.googleapis.com/envoy.api.v2.Listener"},
			"none":  {},
			"nil":   nil,
		} {
			t.Run(rt.Name+"/"+what, func(t *testing.T) {
				t.Parallel()
				name, value, err := rt.Decode(resource, xdsclient.DecodeOptions{})
				want := `has type "` + resource.GetTypeUrl() + `", want "` + rt.TypeURL + `"`
				if name != "" || value != nil || err == nil || err.Error() != want {
					t.Errorf("Decode = %q, %v, %v; want no name, no value, %q", name, value, err, want)
				}
			})
		}
	}
}

func TestDecodeReturnsTheNameOfAResourceThatCannotBeRead(t *testing.T) {
	t.Parallel()
	name := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "the-name")
	for _, tc := range []struct {
		given string
		bytes []byte
		want  string
	}{
		{"a name and then rubbish", append(name[:len(name):len(name)], 0xff), "the-name"},
		{"a field before the name, rubbish after", append(append([]byte{0x78, 0x01}, name...), 0xff), "the-name"},
		{"rubbish before the name", append([]byte{0xff}, name...), ""},
		{"a name that is not UTF-8", []byte{0x0a, 0x01, 0xff}, ""},
		{"a name that ends early", []byte{0x0a, 0x05, 'a'}, ""},
		{"a name that is not a string", []byte{0x08, 0x01, 0xff}, ""},
	} {
		for _, rt := range allTypes {
			t.Run(rt.Name+"/"+tc.given, func(t *testing.T) {
				t.Parallel()
				got, value, err := rt.Decode(&anypb.Any{TypeUrl: rt.TypeURL, Value: tc.bytes}, xdsclient.DecodeOptions{})
				if got != tc.want || value != nil {
					t.Errorf("Decode = %q, %v; want %q and no value", got, value, tc.want)
				}
				if err == nil || !strings.HasPrefix(err.Error(), "cannot be read as envoy.config.") {
					t.Errorf("Decode error = %v, want one that says it cannot be read", err)
				}
			})
		}
	}
}

func TestDecodeReturnsTheNameOfAResourceWithFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rt       *xdsclient.ResourceType
		resource proto.Message
	}{
		{ListenerType, &listenerpb.Listener{Name: "n"}},
		{RouteConfigurationType, &routepb.RouteConfiguration{Name: "n", VirtualHosts: []*routepb.VirtualHost{{}}}},
		{ClusterType, &clusterpb.Cluster{Name: "n"}},
		{EndpointsType, &endpointpb.ClusterLoadAssignment{ClusterName: "n", Endpoints: []*endpointpb.LocalityLbEndpoints{{}}}},
	} {
		t.Run(tc.rt.Name, func(t *testing.T) {
			t.Parallel()
			name, value, err := tc.rt.Decode(xdsmsg.Any(tc.resource), xdsclient.DecodeOptions{})
			if name != "n" || value != nil || err == nil {
				t.Errorf(`Decode = %q, %v, %v; want "n", no value and an error`, name, value, err)
			}
		})
	}
}

func TestDecodeNeedsAName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rt       *xdsclient.ResourceType
		resource proto.Message
		want     fault
	}{
		{ListenerType, &listenerpb.Listener{}, fault{"name", "must not be empty"}},
		{RouteConfigurationType, &routepb.RouteConfiguration{}, fault{"name", "must not be empty"}},
		{ClusterType, &clusterpb.Cluster{}, fault{"name", "must not be empty"}},
		{EndpointsType, &endpointpb.ClusterLoadAssignment{}, fault{"cluster_name", "must not be empty"}},
	} {
		t.Run(tc.rt.Name, func(t *testing.T) {
			t.Parallel()
			faults := decodeFaults(t, tc.rt, tc.resource)
			if len(faults) == 0 || faults[0] != tc.want {
				t.Errorf("faults = %v, want the first to be %v", faults, tc.want)
			}
		})
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	at := faults.Field("d")
	for _, tc := range []struct {
		given string
		pb    *durationpb.Duration
		want  time.Duration
		fault string
	}{
		{given: "unset"},
		{given: "zero", pb: &durationpb.Duration{}},
		{given: "1.5 s", pb: &durationpb.Duration{Seconds: 1, Nanos: 5e8}, want: 1500 * time.Millisecond},
		{given: "longer than Go can hold", pb: &durationpb.Duration{Seconds: 3e11}, want: 1<<63 - 1},
		{given: "negative", pb: &durationpb.Duration{Seconds: -1}, fault: "d: is negative: -1s"},
		{given: "too many nanos", pb: &durationpb.Duration{Nanos: 1e9}, fault: "d: is not a valid duration: seconds: 0, nanos: 1000000000"},
		{given: "mixed signs", pb: &durationpb.Duration{Seconds: 1, Nanos: -1}, fault: "d: is not a valid duration: seconds: 1, nanos: -1"},
		{given: "over 10,000 years", pb: &durationpb.Duration{Seconds: 4e11}, fault: "d: is not a valid duration: seconds: 400000000000, nanos: 0"},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			v := new(validator)
			got := v.duration(at, tc.pb)
			fault := ""
			if v.failed() {
				fault = v.faults.Error()
			}
			if got != tc.want || fault != tc.fault {
				t.Errorf("duration = %v, fault %q; want %v, fault %q", got, fault, tc.want, tc.fault)
			}
		})
	}
}

func TestFaultsSaysAll(t *testing.T) {
	t.Parallel()
	v := new(validator)
	v.fault(nil, "is odd")
	v.fault(faults.Item("virtual_hosts", 2).Item("routes", 0).Field("match"), "is %s", faults.Quote("x"))
	want := `is odd; virtual_hosts[2].routes[0].match: is "x"`
	if got := v.err().Error(); got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	v := new(validator)
	for range 250 {
		v.fault(faults.Field("f"), "%s", strings.Repeat("é", 5000))
	}
	if len(v.faults.List) != 100 || v.faults.Omitted != 150 {
		t.Errorf("%d faults and %d omitted, want 100 and 150", len(v.faults.List), v.faults.Omitted)
	}
	message := v.faults.List[0].Problem
	if want := strings.Repeat("é", 500) + "…"; message != want {
		t.Errorf("message of %d bytes, want it cut between characters to %d", len(message), len(want))
	}
	if got := v.err().Error(); !strings.HasSuffix(got, "; and 150 more") {
		t.Errorf("Error() ends in %q, want it to say that there are 150 more", got[len(got)-20:])
	}
}
