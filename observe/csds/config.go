package csds

import (
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/xdsclient"
)

// clientConfig returns the status of one client.
func clientConfig(d *xdsclient.Dump, contents bool) *statusv3.ClientConfig {
	config := &statusv3.ClientConfig{
		Node:              d.Node,
		ClientScope:       strings.Join(d.Targets, ", "),
		GenericXdsConfigs: make([]*statusv3.ClientConfig_GenericXdsConfig, len(d.Resources)),
	}
	for i := range d.Resources {
		config.GenericXdsConfigs[i] = resourceConfig(&d.Resources[i], contents)
	}
	return config
}

// resourceConfig returns the status of one resource.
func resourceConfig(r *xdsclient.ResourceDump, contents bool) *statusv3.ClientConfig_GenericXdsConfig {
	config := &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl:      r.TypeURL,
		Name:         entryName(r),
		ClientStatus: clientStatus(r.State),
	}
	if r.Cached() {
		config.VersionInfo = version(r.Version)
		config.LastUpdated = timestamppb.New(r.LastUpdated)
		if contents {
			config.XdsConfig = content(r)
		}
	}
	if f := r.Failure; f != nil {
		config.ErrorState = &adminv3.UpdateFailureState{
			VersionInfo:       version(f.Version),
			LastUpdateAttempt: timestamppb.New(f.Time),
			Details:           valid(f.Err.Error()),
		}
	}
	return config
}

// maxDepth is how many messages may be within each other in a resource that is shown as it is. No resource
// that means anything comes near it.
const maxDepth = 100

// content returns the resource for an entry. One with messages in messages without end is a BytesValue of its
// bytes: whoever prints an answer as JSON copies a message in an Any once for each Any that it is in,
// so that a resource of a megabyte takes a gigabyte to print.
func content(r *xdsclient.ResourceDump) *anypb.Any {
	a := r.Any()
	if !protofield.Deeper(a.GetValue(), maxDepth) {
		return a
	}
	opaque, err := anypb.New(wrapperspb.Bytes(a.GetValue()))
	if err != nil {
		return a // Not reached: bytes can always be marshalled.
	}
	return opaque
}

// entryName returns the name of an entry. Of entries of one name, what distinguishes them follows the name and a space: CSDS
// has no field for that.
func entryName(r *xdsclient.ResourceDump) string {
	if variant := livestate.Variant(r); variant != "" {
		return r.Name + " " + variant
	}
	return r.Name
}

// valid makes a server's text valid UTF-8, without which the whole answer could not be
// marshalled.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// version shortens a version that is longer than any server needs: with it the whole answer would be too large for clients
// of CSDS.
func version(text string) string {
	if len(text) > bounds.EchoedVersion {
		return bounds.Text(text, bounds.ErrorText)
	}
	return valid(text)
}

// clientStatus maps the states to those of CSDS, which have the same names (gRFC
// A88, "Cache Entry States, CSDS, and XdsClient Metrics").
func clientStatus(s xdsclient.CacheState) adminv3.ClientResourceStatus {
	return adminv3.ClientResourceStatus(adminv3.ClientResourceStatus_value[string(s)])
}
