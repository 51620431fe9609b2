package discoveryv3_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	// Linked so that a name that one of them has as well would panic before any test
	// is run.
	_ "github.com/cncf/xds/go/xds/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

	_ "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	_ "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

// Two files of one path, or two declarations of one full name, panic when a process
// starts. Ours are below a name that is nobody else's, whatever else is linked.
func TestNamesAreOurOwn(t *testing.T) {
	t.Parallel()
	found := 0
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		options := file.Options().(*descriptorpb.FileOptions)
		if !strings.HasPrefix(options.GetGoPackage(), "github.com/dynxds/dynxds/") {
			if strings.HasPrefix(string(file.Package()), "dynxds") {
				t.Errorf("%s is in package %s and not ours", file.Path(), file.Package())
			}
			return true
		}
		found++
		if !strings.HasPrefix(file.Path(), "dynxds/") || !strings.HasPrefix(string(file.Package()), "dynxds.") {
			t.Errorf("%s in package %s may clash with someone else's", file.Path(), file.Package())
		}
		return true
	})
	if found != 5 {
		t.Errorf("found %d files of ours, want 5", found)
	}
	for _, name := range []protoreflect.FullName{
		"envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap",
		"envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService",
	} {
		if d, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
			t.Errorf("%s is registered by %s: Envoy has it now", name, d.ParentFile().Path())
		}
	}
}
