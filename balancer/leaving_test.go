package balancer_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// slowToken is credentials that take until the end of wait to make a token, after the pick.
type slowToken struct{ wait chan struct{} }

func (s slowToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	<-s.wait
	return nil, nil
}
func (slowToken) RequireTransportSecurity() bool { return false }

// ends counts the connections to a server that have ended.
type ends struct {
	stats.Handler
	count int
}

func (e *ends) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (e *ends) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (e *ends) HandleRPC(context.Context, stats.RPCStats)                         {}
func (e *ends) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, end := s.(*stats.ConnEnd); end {
		e.count++
	}
}

// The endpoint of an RPC leaves after the pick and before the stream, while another stream keeps its connection open. However
// long that takes, the RPC is answered, by the endpoint that was picked; and the connection is closed after the last RPC.
func TestEndpointLeavesBeforeTheStream(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		hold func(ch *channel, first *stream) (rpc grpc.CallOption, goOn func())
	}{
		{"a token is made", func(*channel, *stream) (grpc.CallOption, func()) {
			token := slowToken{make(chan struct{})}
			return grpc.PerRPCCredentials(token), func() { close(token.wait) }
		}},
		{"the server has as many streams as it takes", func(ch *channel, first *stream) (grpc.CallOption, func()) {
			second, err := ch.open()
			xdstest.NoError(ch.t, err)
			_, err = second.exchange()
			xdstest.NoError(ch.t, err)
			return grpc.EmptyCallOption{}, func() { second.CloseSend(); second.RecvMsg(new(wrapperspb.StringValue)) }
		}},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listeners := map[string]*bufconn.Listener{"old:1": bufconn.Listen(1 << 16), "new:1": bufconn.Listen(1 << 16)}
				ended := make(map[string]*ends)
				for addr, l := range listeners {
					ended[addr] = new(ends)
					s := grpc.NewServer(answering(addr), grpc.MaxConcurrentStreams(2), grpc.StatsHandler(ended[addr]))
					go s.Serve(l)
					defer s.Stop()
				}
				ch := dial(t, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return listeners[addr].DialContext(ctx) }))
				defer ch.cc.Close()
				ch.publish("c", states{"c": serving("old:1")})
				stream, err := ch.open()
				xdstest.NoError(t, err)
				_, err = stream.exchange()
				xdstest.NoError(t, err)

				option, goOn := tc.hold(ch, stream)
				answer := make(chan string, 1)
				go func() {
					name, err := ch.call(option)
					if err != nil {
						name = err.Error()
					}
					answer <- name
				}()
				synctest.Wait()
				ch.publish("c", states{"c": serving("new:1")})
				ch.expect("new:1")
				time.Sleep(patience / 2)
				goOn()
				xdstest.Equal(t, "the RPC was answered by", "old:1", <-answer)

				stream.CloseSend()
				stream.RecvMsg(new(wrapperspb.StringValue))
				synctest.Wait()
				xdstest.Equal(t, "connections that have ended at the old endpoint", 1, ended["old:1"].count)
				xdstest.Equal(t, "connections that have ended at the new endpoint", 0, ended["new:1"].count)
			})
		})
	}
}
