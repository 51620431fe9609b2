package csds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/secrets"
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
	a := secrets.Hide(r.Any())
	if !protofield.Deeper(a.GetValue(), maxDepth) {
		return a
	}
	opaque, _ := anypb.New(wrapperspb.Bytes(a.GetValue())) // of bytes, which cannot fail
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

func init() { grpcbridge.AddAdminService(Register) }

// file marks our service among those of a server.
type file string

var description = func() grpc.ServiceDesc {
	d := statusv3.ClientStatusDiscoveryService_ServiceDesc
	d.Metadata = file("envoy/service/status/v3/csds.proto")
	return d
}()

// Register registers the service, envoy.service.status.v3.ClientStatusDiscoveryService,
// for all clients of the process, including later ones. It must be called before the
// server serves. It does nothing if s has the service already, from an earlier call or from gRPC's
// admin.Register (gRFC A38), to which importing this package adds it.
//
// It returns an error, and leaves s unchanged, if s has another implementation of the service and lists its
// services, as a *grpc.Server does: gRPC would end the process. In a program that links gRPC-Go's own xds,
// admin.Register adds the CSDS of that one, which knows only its own clients; use another server for this one.
func Register(s grpc.ServiceRegistrar) error {
	if known, ok := s.(interface {
		GetServiceInfo() map[string]grpc.ServiceInfo
	}); ok {
		if info, taken := known.GetServiceInfo()[description.ServiceName]; taken {
			if _, ours := info.Metadata.(file); ours {
				return nil
			}
			return fmt.Errorf("csds: the server already has a service %s, perhaps that of gRPC-Go's own xds through admin.Register; use another server", description.ServiceName)
		}
	}
	s.RegisterService(&description, service{})
	return nil
}

// service implements the two methods over the clients of the process.
type service struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
}

// StreamClientStatus answers each request of the stream once. It does not watch
// (gRFC A40, "Background").
func (s service) StreamClientStatus(stream statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resp, err := s.FetchClientStatus(stream.Context(), req)
		if err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// askingTime bounds how long an answer takes because of balancers.
const askingTime = 2 * time.Second

// FetchClientStatus answers one request.
func (service) FetchClientStatus(ctx context.Context, req *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	// gRFC A40, "Node Matching".
	if n := len(req.GetNodeMatchers()); n > 0 {
		return nil, status.Errorf(codes.InvalidArgument, "node_matchers: %d given, none supported: this process answers for itself only", n)
	}
	resp := &statusv3.ClientStatusResponse{}
	// The balancers of many clusters are asked; what they do not say in that time is left out.
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	clients := xdsclient.Clients()
	resp.Config = make([]*statusv3.ClientConfig, len(clients))
	var asking sync.WaitGroup
	for i, c := range clients {
		asking.Go(func() {
			d := c.Dump()
			config := clientConfig(d, !req.GetExcludeResourceContents())
			config.GenericXdsConfigs = append(config.GenericXdsConfigs, stateConfig(ctx, livestate.OfClient(d)))
			resp.Config[i] = config
		})
	}
	asking.Wait()
	if c := bypassing(ctx); c != nil {
		resp.Config = append(resp.Config, c)
	}
	return resp, nil
}

// StateName is the name of the entry of a ClientConfig that is no resource but the live state.
const StateName = "dynxds.state"

// bypassing returns a ClientConfig without a node for the channels that have no client, for want of a bootstrap, and are resolved
// by DNS. It is nil if there are none.
func bypassing(ctx context.Context) *statusv3.ClientConfig {
	source := livestate.OfNoClient()
	if len(source.Channels) == 0 {
		return nil
	}
	var targets []string
	for _, c := range source.Channels {
		targets = append(targets, c.Target)
	}
	slices.Sort(targets)
	return &statusv3.ClientConfig{
		ClientScope:       strings.Join(slices.Compact(targets), ", "),
		GenericXdsConfigs: []*statusv3.ClientConfig_GenericXdsConfig{stateConfig(ctx, source)},
	}
}

// stateConfig returns the entry with the live state of a client and its channels: a Struct, which every tool
// can print, as it is of a type that all of them know.
func stateConfig(ctx context.Context, source *livestate.Source) *statusv3.ClientConfig_GenericXdsConfig {
	state := livestate.Take(ctx, source)
	// Nothing of this can fail: a State has nothing but texts, numbers and times.
	values := new(structpb.Struct)
	_ = values.UnmarshalJSON(state.JSON())
	content, _ := anypb.New(values)
	return &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl: content.GetTypeUrl(), Name: StateName, VersionInfo: livestate.Format, XdsConfig: content,
		LastUpdated: timestamppb.New(state.Time), ClientStatus: adminv3.ClientResourceStatus_ACKED,
	}
}
