package xdsresource

import (
	"errors"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynparamspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var allTypes = []*xdsclient.ResourceType{ListenerType, RouteConfigurationType, ClusterType, EndpointsType}

func TestResourceTypes(t *testing.T) {
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
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			xdstest.Equal(t, "TypeURL", xdsmsg.Any(tc.message).TypeUrl, tc.rt.TypeURL)
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
			xdstest.Parallel(t, rt.Name+"/"+what, func(t *testing.T) {
				value, err := rt.Decode(resource, xdsclient.DecodeOptions{})
				want := `has type "` + resource.GetTypeUrl() + `", want "` + rt.TypeURL + `"`
				if value != nil || err == nil || err.Error() != want {
					t.Errorf("Decode = %v, %v; want no value, %q", value, err, want)
				}
			})
		}
	}
}

func TestNameOfAMalformedResource(t *testing.T) {
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
			xdstest.Parallel(t, rt.Name+"/"+tc.given, func(t *testing.T) {
				if got := rt.NameOf(tc.bytes); string(got) != tc.want {
					t.Errorf("the name is %q, want %q", got, tc.want)
				}
				value, err := rt.Decode(&anypb.Any{TypeUrl: rt.TypeURL, Value: tc.bytes}, xdsclient.DecodeOptions{})
				if value != nil {
					t.Errorf("Decode = %v; want no value", value)
				}
				if err == nil || !strings.HasPrefix(err.Error(), "cannot be read as envoy.config.") {
					t.Errorf("Decode error = %v, want one that says it cannot be read", err)
				}
			})
		}
	}
}

func TestDecodeResourceWithoutAName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rt        *xdsclient.ResourceType
		blank     proto.Message
		nameField string
	}{
		{ListenerType, &listenerpb.Listener{}, "name"},
		{RouteConfigurationType, &routepb.RouteConfiguration{}, "name"},
		{ClusterType, &clusterpb.Cluster{}, "name"},
		{EndpointsType, &endpointpb.ClusterLoadAssignment{}, "cluster_name"},
	} {
		xdstest.Parallel(t, tc.rt.Name, func(t *testing.T) {
			want := fault{tc.nameField, "must not be empty"}
			if faults := decodeFaults(t, tc.rt, tc.blank); len(faults) == 0 || faults[0] != want {
				t.Errorf("faults = %v, want the first to be %v", faults, want)
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
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
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

func TestFaultsListsAll(t *testing.T) {
	t.Parallel()
	v := new(validator)
	v.fault(nil, "is odd")
	v.fault(faults.Item("virtual_hosts", 2).Item("routes", 0).Field("match"), "is %s", faults.Quote("x"))
	want := `is odd; virtual_hosts[2].routes[0].match: is "x"`
	xdstest.Equal(t, "Error()", want, v.err().Error())
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

// dpds packs constraints on one key of one type.
func dpds(t testing.TB, typeName string, constraints ...*discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint) *anypb.Any {
	t.Helper()
	a, err := dynwire.MarshalMap(&dynparamspb.DynamicParameterConstraintsMap{
		ResourceTypeConstraints: map[string]*discoverypb.DynamicParameterConstraints{
			typeName: {KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{
				"listener_type": {Constraints: constraints},
			}},
		},
	})
	xdstest.NoError(t, err)
	return a
}

func direct() *discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint {
	return &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint{
		Constraint: &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint_Value{Value: "direct"},
	}
}

// TP2, "Server-Specified Constraints" and "DPDS Example".
func TestDynamicParameterConstraintsMap(t *testing.T) {
	t.Parallel()
	resource := dpds(t, "envoy.config.listener.v3.Listener", direct())
	value, err := DynamicParameterConstraintsType.Decode(resource, xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	xdstest.Equal(t, "name (the message has none)", "", string(DynamicParameterConstraintsType.NameOf(resource.GetValue())))
	constraints := value.(*DynamicParameterConstraintsMap).Constraints
	xdstest.Equal(t, "constraints for Listener",
		"{listener_type=direct}", constraints.For(typeurl.Listener).String())
	if got := constraints.For(typeurl.Cluster); !got.IsZero() {
		t.Errorf("constraints for Cluster are %v, want none", got)
	}
}

func TestDynamicParameterConstraintsMapWithFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		resource *anypb.Any
		want     []faults.Fault
	}{
		{"a type that is none and a key without constraints", dpds(t, "*"), []faults.Fault{
			{Path: `resource_type_constraints["*"]`, Problem: `expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", found "*"`},
			{Path: `resource_type_constraints["*"].key_constraints["listener_type"].constraints`, Problem: "expected a list with at least one constraint, found an empty list"},
		}},
		{"bytes that are no message", &anypb.Any{TypeUrl: DynamicParameterConstraintsTypeURL, Value: []byte{0xff}}, nil},
		{"another type", &anypb.Any{TypeUrl: typeurl.Cluster}, nil},
	} {
		xdstest.Parallel(t, tt.name, func(t *testing.T) {
			value, err := DynamicParameterConstraintsType.Decode(tt.resource, xdsclient.DecodeOptions{})
			if err == nil || value != nil {
				t.Fatalf("Decode = %v, %v, want an error and no value", value, err)
			}
			var faults *dynparam.Faults
			if errors.As(err, &faults) != (tt.want != nil) {
				t.Fatalf("error %v has the wrong type %T", err, err)
			}
			if faults != nil {
				xdstest.Equal(t, "faults", tt.want, faults.List)
			}
		})
	}
}

// Constraints for a type that is no resource type choose nothing: they are ignored, and
// listed as such. TP2's own text has two of them ("Sharding Endpoints" and "Selecting
// Cluster Based on ACL").
func TestIgnoredConstraintsOfADynamicParameterConstraintsMap(t *testing.T) {
	t.Parallel()
	for typeName, want := range map[string][]xdsclient.Ignored{
		"envoy.config.route.v3.RouteConfiguration": nil,
		"acme.v1.Thing": nil, // the program may have such a type
		"envoy.config.cluster.v3.RouteConfiguration": {{
			Path:     `resource_type_constraints["envoy.config.cluster.v3.RouteConfiguration"]`,
			Severity: xdsclient.SeverityWarning, Places: 1,
			Reason: `found "envoy.config.cluster.v3.RouteConfiguration", which is the type of no resource; did you mean "envoy.config.route.v3.RouteConfiguration"?`,
		}},
		xdsname.ConstraintsMap: {{
			Path:     `resource_type_constraints["` + xdsname.ConstraintsMap + `"]`,
			Severity: xdsclient.SeverityWarning, Places: 1,
			Reason: `found "` + xdsname.ConstraintsMap + `", which is asked for without constraints (xRFC TP2, "Non-Cacheability of DPDS")`,
		}},
	} {
		resource := dpds(t, typeName, direct())
		got, err := IgnoredFields(resource)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: ignored (-want +got):\n%s, %v", typeName, diff, err)
		}
		value, err := DynamicParameterConstraintsType.Decode(resource, xdsclient.DecodeOptions{})
		xdstest.NoError(t, err)
		if said := DynamicParameterConstraintsType.Ignored(value); len(said) != len(want) || len(want) > 0 && said[0] != xdsclient.Ignored(want[0]) {
			t.Errorf("%s: the type says that %v is ignored, want %v", typeName, said, want)
		}
	}
	if _, err := IgnoredFields(&anypb.Any{TypeUrl: DynamicParameterConstraintsTypeURL, Value: []byte{0xff}}); err == nil {
		t.Error("what cannot be read has no error")
	}
}

func FuzzDynamicParameterConstraintsMap(f *testing.F) {
	f.Add(dpds(f, "envoy.config.listener.v3.Listener", direct()).Value)
	f.Fuzz(func(t *testing.T, b []byte) {
		value, err := DynamicParameterConstraintsType.Decode(
			&anypb.Any{TypeUrl: DynamicParameterConstraintsTypeURL, Value: b}, xdsclient.DecodeOptions{})
		if (value == nil) != (err != nil) {
			t.Fatalf("Decode = %v, %v: want either", value, err)
		}
		if err != nil {
			return
		}
		// What was accepted is accepted again in canonical form, and means the same.
		constraints := value.(*DynamicParameterConstraintsMap).Constraints
		again, err := dynparam.ByTypeFromProto(constraints.ToProto())
		if err != nil || !again.Equal(constraints) {
			t.Fatalf("%v became %v, %v", constraints.ToProto(), again.ToProto(), err)
		}
	})
}
