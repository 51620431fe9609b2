package dynamicparametersv3_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	envoyannotations "github.com/envoyproxy/go-control-plane/envoy/annotations"

	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

// TP2, "Server-Specified Constraints": the methods of
// DynamicParametersDiscoveryService.
func TestDPDSMethods(t *testing.T) {
	t.Parallel()
	type method struct {
		Input, Output                protoreflect.Name
		ClientStreams, ServerStreams bool
		Post, Body                   string
	}
	want := map[protoreflect.Name]method{
		"StreamDynamicParameterConstraints": {"DiscoveryRequest", "DiscoveryResponse", true, true, "", ""},
		"DeltaDynamicParameterConstraints":  {"DeltaDiscoveryRequest", "DeltaDiscoveryResponse", true, true, "", ""},
		"FetchDynamicParameterConstraints":  {"DiscoveryRequest", "DiscoveryResponse", false, false, "/v3/discovery:dynamic_parameters", "*"},
	}
	service := dynamicparametersv3.File_dynxds_dynamic_parameters_v3_dpds_proto.Services().ByName("DynamicParametersDiscoveryService")
	got := map[protoreflect.Name]method{}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		rule := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		got[m.Name()] = method{m.Input().Name(), m.Output().Name(), m.IsStreamingClient(), m.IsStreamingServer(), rule.GetPost(), rule.GetBody()}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	resource := proto.GetExtension(service.Options(), envoyannotations.E_Resource).(*envoyannotations.ResourceAnnotation)
	if diff := cmp.Diff("envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap", resource.GetType()); diff != "" {
		t.Errorf("the type of its resources (-want +got):\n%s", diff)
	}
}
