package controlplane

import (
	"context"

	"google.golang.org/grpc/codes"
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

func (d *dpds) StreamDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_StreamDynamicParameterConstraintsServer) error {
	return d.server.serveSotW(wire, dynparam.MapTypeURL)
}

func (d *dpds) DeltaDynamicParameterConstraints(wire dpdspb.DynamicParametersDiscoveryService_DeltaDynamicParameterConstraintsServer) error {
	return d.server.serveDelta(wire, dynparam.MapTypeURL)
}

// FetchDynamicParameterConstraints returns what would be a stream's first response, with an
// error for every name that does not exist. It waits for a source to answer for all names.
func (d *dpds) FetchDynamicParameterConstraints(ctx context.Context, req *discoverypb.DiscoveryRequest) (*discoverypb.DiscoveryResponse, error) {
	s := d.server
	st, err := s.begin(ctx, ProtocolSotW, dynparam.MapTypeURL)
	if err != nil {
		return nil, err
	}
	defer s.end(st)
	if most := st.store.pace.due; len(req.GetResourceNames())+len(req.GetResourceLocators()) > most {
		return nil, st.usage.refused("stream_names", status.Errorf(codes.ResourceExhausted,
			"a request has more than %d names: use StreamDynamicParameterConstraints", most))
	}
	req.VersionInfo, req.ResponseNonce, req.ErrorDetail = "", "", nil
	st.reportsAbsence, st.fetches = true, true
	p := &sotw{stream: st}
	if err := p.handleRequest(req); err != nil {
		return nil, err
	}
	if len(req.GetResourceNames())+len(req.GetResourceLocators()) == 0 {
		return &discoverypb.DiscoveryResponse{TypeUrl: dynparam.MapTypeURL, VersionInfo: formatVersion(st.store.Version())}, nil
	}
	var resp *discoverypb.DiscoveryResponse
	for err == nil && resp == nil {
		select {
		case <-st.wake:
			err = push(st, p, func(r *discoverypb.DiscoveryResponse) error {
				resp = r
				return st.failed()
			})
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		case <-st.failing.Done():
			err = st.failed()
		case <-s.closing.Done():
			err = errClosed
		}
	}
	return resp, err
}
