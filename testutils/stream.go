package testutils

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// stream is one stream of a client. After each request, and each update of the store, it computes from
// scratch what the client is to know, and sends what the client was not told. A request of SotW is taken as one of delta that
// subscribes to all that the client wants, and a response is made for delta first. FakeServer.state guards it.
type stream struct {
	delta bool
	// due says that something may be due.
	due bool

	node   *corepb.Node
	types  map[string]*typeState
	nonces int
}

// serve runs a stream until the client, an error or the server ends it.
func (f *FakeServer) serve(lasts context.Context, st *stream, wire grpc.ServerStream) error {
	begun := false
	f.state.Change(func() {
		if begun = lasts.Err() == nil; begun {
			f.running.Add(1)
			f.streams = append(f.streams, st)
		}
	})
	if !begun {
		return errStopped
	}
	defer f.state.Change(func() {
		f.running.Done()
		f.streams = slices.DeleteFunc(f.streams, func(other *stream) bool { return other == st })
	})
	ended := make(chan error, 2)
	f.running.Go(func() {
		for {
			req, err := st.receive(wire)
			if err == nil {
				f.state.Change(func() { st.due, err = true, st.request(req) })
			}
			if err != nil {
				ended <- err
				return
			}
		}
	})
	f.running.Go(func() {
		for f.state.Wait(wire.Context(), func() bool { return st.due }) == nil {
			var all []proto.Message
			f.state.Change(func() {
				st.due = false
				all = st.responses(&f.store)
			})
			for _, resp := range all {
				if err := wire.SendMsg(resp); err != nil {
					ended <- err
					return
				}
			}
		}
	})
	select {
	case err := <-ended:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-lasts.Done():
		return errStopped
	}
}

// receive reads a request.
func (st *stream) receive(wire grpc.ServerStream) (*discoverypb.DeltaDiscoveryRequest, error) {
	if st.delta {
		req := new(discoverypb.DeltaDiscoveryRequest)
		return req, wire.RecvMsg(req)
	}
	req := new(discoverypb.DiscoveryRequest)
	err := wire.RecvMsg(req)
	return &discoverypb.DeltaDiscoveryRequest{
		Node: req.GetNode(), TypeUrl: req.GetTypeUrl(), ResponseNonce: req.GetResponseNonce(), ErrorDetail: req.GetErrorDetail(),
		ResourceNamesSubscribe: req.GetResourceNames(), ResourceLocatorsSubscribe: req.GetResourceLocators(),
	}, err
}

// sotw returns a response as one of SotW, which has no removals. Only a wrapped resource has parameters (TP2, "API Changes") and cache
// control.
func sotw(resp *discoverypb.DeltaDiscoveryResponse, wrapped bool) proto.Message {
	m := &discoverypb.DiscoveryResponse{
		TypeUrl: resp.GetTypeUrl(), VersionInfo: resp.GetSystemVersionInfo(), Nonce: resp.GetNonce(), ResourceErrors: resp.GetResourceErrors(),
	}
	for _, r := range resp.GetResources() {
		packed := r.GetResource()
		if wrapped {
			value, _ := proto.Marshal(r) // of parts that were marshaled before
			packed = &anypb.Any{TypeUrl: typeurl.Wrapper, Value: value}
		}
		m.Resources = append(m.Resources, packed)
	}
	return m
}

// typeOf returns the state of the type of a request.
func (st *stream) typeOf(req *discoverypb.DeltaDiscoveryRequest) (ts *typeState, first bool, err error) {
	if len(st.types) == 0 {
		st.node = req.GetNode()
	}
	typeURL, locators := req.GetTypeUrl(), len(req.GetResourceLocatorsSubscribe()) > 0
	if typeURL == "" {
		return nil, false, status.Error(codes.InvalidArgument, "type_url is empty")
	}
	ts = st.types[typeURL]
	if first = ts == nil; first {
		ts = &typeState{
			typeURL: typeURL, complete: !st.delta && hasWildcard(typeURL), byLocators: locators,
			subscribed: subscriptions{}, reply: TypeStatus{TypeURL: typeURL},
		}
		st.types[typeURL] = ts
	}
	if !ts.byLocators && locators {
		return nil, false, status.Errorf(codes.InvalidArgument, "locators of %s after a first request without: they would be ignored (xRFC TP2)", typeURL)
	}
	return ts, first, nil
}

// answered notes an ACK or, with an error, a NACK. In SotW a nonce is repeated when names change: the first
// request with it is the answer.
func (ts *typeState) answered(nonce string, fault *statuspb.Status) {
	if nonce == "" || nonce != ts.nonce || ts.reply.Answered {
		return
	}
	ts.reply.Answered = true
	if fault != nil {
		ts.reply.NACK = status.FromProto(fault)
	}
}

// request takes a request. The client is told what there is of each new subscription, even if it was told before.
func (st *stream) request(req *discoverypb.DeltaDiscoveryRequest) error {
	ts, first, err := st.typeOf(req)
	if err != nil {
		return err
	}
	if nonce := req.GetResponseNonce(); !st.delta && nonce != "" && nonce != ts.nonce {
		return nil // it has crossed a response, for which the client will send another
	}
	ts.answered(req.GetResponseNonce(), req.GetErrorDetail())
	dropped := subscriptionsOf(ts.byLocators, req.GetResourceNamesUnsubscribe(), req.GetResourceLocatorsUnsubscribe())
	asked := subscriptionsOf(ts.byLocators, req.GetResourceNamesSubscribe(), req.GetResourceLocatorsSubscribe())
	if len(asked) == 0 && !ts.named && hasWildcard(ts.typeURL) {
		asked.add(wildcard, nil, false)
	} else if len(asked) > 0 {
		ts.named = true
	}
	ts.named = ts.named || st.delta
	if !st.delta {
		for tp := range ts.subscribed {
			if _, still := asked[tp]; still {
				delete(asked, tp)
			} else {
				ts.unsubscribe(tp)
			}
		}
	}
	for tp := range dropped {
		ts.unsubscribe(tp)
	}
	for tp, sub := range asked {
		ts.subscribed[tp] = sub
		ts.unanswered = ts.unanswered || ts.complete || st.delta && tp.name == wildcard
	}
	if first {
		ts.resume(req.GetInitialResourceVersions())
	}
	return nil
}

// unsubscribe ends a subscription. Of what a collection has under the name the client is told again, as it may have forgotten that.
func (ts *typeState) unsubscribe(tp topic) {
	delete(ts.subscribed, tp)
	for _, sub := range ts.subscribed {
		delete(sub.told, tp)
	}
}

// breakOrder has the types in the order in which they refer to each other. Responses are in the opposite order, so that nothing
// refers to what the client does not have yet, and those of other types come last.
var breakOrder = []string{typeurl.RouteConfiguration, typeurl.Listener, typeurl.Endpoints, typeurl.Cluster, dynparam.MapTypeURL}

// responses returns what is due. Clusters and their endpoints are lost only after all other types have changed.
func (st *stream) responses(s *store) (all []proto.Message) {
	next := func(ts *typeState, keepLost bool) {
		resp := st.news(ts, s, keepLost)
		if resp == nil {
			return
		}
		st.nonces++
		ts.nonce, ts.unanswered = fmt.Sprint("nonce-", st.nonces), false
		resp.SystemVersionInfo, resp.Nonce = fmt.Sprint(s.version), ts.nonce
		ts.reply.Sent, ts.reply.Answered, ts.reply.NACK = resp.GetSystemVersionInfo(), false, nil
		if st.delta {
			all = append(all, resp)
		} else {
			all = append(all, sotw(resp, ts.byLocators || ts.typeURL == dynparam.MapTypeURL))
		}
	}
	types := slices.SortedFunc(maps.Values(st.types), func(a, b *typeState) int {
		return cmp.Or(cmp.Compare(slices.Index(breakOrder, b.typeURL), slices.Index(breakOrder, a.typeURL)), strings.Compare(a.typeURL, b.typeURL))
	})
	breaks := func(ts *typeState) bool { return ts.typeURL == typeurl.Cluster || ts.typeURL == typeurl.Endpoints }
	for _, ts := range types {
		next(ts, breaks(ts))
	}
	for _, ts := range types {
		if breaks(ts) {
			next(ts, false)
		}
	}
	return all
}
