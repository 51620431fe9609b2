package controlplane

import (
	"context"

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

func (d *dpds) StreamDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_StreamDynamicParameterConstraintsServer) error {
	return d.server.serveSotW(wire, dynparam.MapTypeURL)
}

func (d *dpds) DeltaDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_DeltaDynamicParameterConstraintsServer) error {
	return d.server.serveDelta(wire, dynparam.MapTypeURL)
}

// FetchDynamicParameterConstraints returns what would be a stream's first response, with an
// error for every name that does not exist.
func (d *dpds) FetchDynamicParameterConstraints(ctx context.Context, req *discoverypb.DiscoveryRequest) (*discoverypb.DiscoveryResponse, error) {
	s := d.server
	st, err := s.begin(ctx, ProtocolSotW, dynparam.MapTypeURL)
	if err != nil {
		return nil, err
	}
	defer s.end(st)
	req.ResponseNonce, req.ErrorDetail = "", nil
	p := newSotW(st, s.opts.WrapResources, true)
	if err := p.handleRequest(req); err != nil {
		return nil, err
	}
	resp := &discoverypb.DiscoveryResponse{TypeUrl: dynparam.MapTypeURL, VersionInfo: formatVersion(st.store.Version())}
	err = p.push(func(pushed *discoverypb.DiscoveryResponse) error {
		resp = pushed
		return nil
	})
	return resp, err
}
