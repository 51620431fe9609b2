package controlplane

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dpdspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// dpds is the Dynamic Parameter Discovery Service, for clients that do not use
// ADS for it (TP2, "Server-Specified Constraints").
type dpds struct {
	dpdspb.UnimplementedDynamicParametersDiscoveryServiceServer
	server *Server
}

// ofDPDS makes sure that a request is for the service's type, which clients may
// leave out.
func ofDPDS(typeURL *string) error {
	switch *typeURL {
	case "":
		*typeURL = dynparam.MapTypeURL
	case dynparam.MapTypeURL:
	default:
		return status.Errorf(codes.InvalidArgument, "type_url: %q on a DPDS stream, which has %q only; use the aggregated discovery service", *typeURL, dynparam.MapTypeURL)
	}
	return nil
}

type dpdsSotW struct{ *sotw }

func (p dpdsSotW) handleRequest(req *discoverypb.DiscoveryRequest) error {
	if err := ofDPDS(&req.TypeUrl); err != nil {
		return err
	}
	return p.sotw.handleRequest(req)
}

type dpdsDelta struct{ *delta }

func (p dpdsDelta) handleRequest(req *discoverypb.DeltaDiscoveryRequest) error {
	if err := ofDPDS(&req.TypeUrl); err != nil {
		return err
	}
	return p.delta.handleRequest(req)
}

func (d *dpds) StreamDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_StreamDynamicParameterConstraintsServer) error {
	s := d.server
	return serve(s, ProtocolSotW, wire, func(st *stream) protocolHandler[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse] {
		return dpdsSotW{newSotW(st, s.opts.WrapResources, s.opts.NotFoundErrors)}
	})
}

func (d *dpds) DeltaDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_DeltaDynamicParameterConstraintsServer) error {
	s := d.server
	if s.opts.NoDelta {
		return errNoDelta
	}
	return serve(s, ProtocolDelta, wire, func(st *stream) protocolHandler[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse] {
		return dpdsDelta{newDelta(st, s.opts.MaxResponseSize)}
	})
}

// FetchDynamicParameterConstraints answers with what a stream's first response
// would have, and with an error for every name that does not exist.
func (d *dpds) FetchDynamicParameterConstraints(ctx context.Context, req *discoverypb.DiscoveryRequest) (*discoverypb.DiscoveryResponse, error) {
	s := d.server
	from, _ := peer.FromContext(ctx)
	st := s.begin(ProtocolSotW, from)
	if st == nil {
		return nil, errClosed
	}
	defer s.end(st)
	req.ResponseNonce, req.ErrorDetail = "", nil
	p := dpdsSotW{newSotW(st, s.opts.WrapResources, true)}
	if err := p.handleRequest(req); err != nil {
		return nil, err
	}
	resp := &discoverypb.DiscoveryResponse{TypeUrl: dynparam.MapTypeURL, VersionInfo: formatVersion(s.store.Version())}
	err := p.push(func(pushed *discoverypb.DiscoveryResponse) error {
		resp = pushed
		return nil
	})
	return resp, err
}
