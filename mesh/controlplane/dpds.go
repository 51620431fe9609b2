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
	req.ResponseNonce, req.ErrorDetail = "", nil
	st.reportsAbsence = true
	p := &sotw{stream: st}
	if err := p.handleRequest(req); err != nil {
		return nil, err
	}
	batches, answered := p.fetch()
	for ; !answered; batches, answered = p.fetch() {
		select {
		case <-st.wake:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-st.failing:
			return nil, st.failure
		case <-s.closing.Done():
			return nil, errClosed
		}
	}
	resp := &discoverypb.DiscoveryResponse{TypeUrl: dynparam.MapTypeURL, VersionInfo: formatVersion(st.store.Version())}
	err = p.sendAll(batches, func(pushed *discoverypb.DiscoveryResponse) error {
		resp = pushed
		return nil
	})
	if err == nil {
		err = st.failed()
	}
	return resp, err
}

// fetch returns the responses, if sources have answered for all names.
func (p *sotw) fetch() (batches []batch, answered bool) {
	p.withStore(func() {
		if answered = !p.awaitsAnswer(p.subs[dynparam.MapTypeURL]); answered {
			batches = p.number()
		}
	})
	return batches, answered
}

// awaitsAnswer reports whether a source has not answered for all names of a subscription. Then wake has
// a token after each answer; otherwise the subscription is due. The caller holds Store.mu for reading, and mu.
func (s *stream) awaitsAnswer(sub *subscription) bool {
	s.takeDue()
	if sub.settling > 0 {
		return true
	}
	for a := range sub.asks() {
		if a.entryOf(sub) == awaited {
			return true
		}
	}
	for a := range sub.asks() {
		sub.items.add(sub.topicOf(a), true)
	}
	s.markDue(sub)
	return false
}
