package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	orcadatapb "github.com/cncf/xds/go/xds/data/orca/v3"
	orcapb "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// bearer are call credentials with a token of their own for each attempt.
type bearer struct {
	key    string
	tokens atomic.Int64
}

func (b *bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	if err := credentials.CheckSecurityLevel(info.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
		return nil, err
	}
	return map[string]string{b.key: fmt.Sprintf("token %d", b.tokens.Add(1))}, nil
}

func (*bearer) RequireTransportSecurity() bool { return true }

// identified returns an error for an RPC whose client is not known by its certificate.
func identified(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return errors.New("no peer")
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); !ok || len(info.State.VerifiedChains) == 0 {
		return fmt.Errorf("the client is known by %T, without a certificate", p.AuthInfo)
	}
	return nil
}

// attempts are the tokens that backends got.
type attempts struct {
	xdstest.State
	tokens map[string]bool
}

// accept returns an error for an attempt without the client's certificate, or without tokens of its own.
func (a *attempts) accept(ctx context.Context, rpc testutils.RPC) (err error) {
	err = identified(ctx)
	a.Change(func() {
		for _, key := range []string{"channel-token", "call-token"} {
			value := key + fmt.Sprint(rpc.Metadata.Get(key))
			if len(rpc.Metadata.Get(key)) != 1 || a.tokens[value] {
				err = fmt.Errorf("an attempt has %s", value)
			}
			a.tokens[value] = true
		}
	})
	return err
}

// gRFC A97 and A29: each attempt of an RPC that is sent again goes over mTLS, with the call credentials of the channel and
// of the RPC, which are asked for each attempt.
func TestAttemptsHaveCallCredentialsOverMutualTLS(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	context1 := xdsmsg.UpstreamTLS("default", "default", "a")
	xdstest.Parallel(t, "retries", func(t *testing.T) {
		m, seen := newSecureMesh(t), &attempts{tokens: map[string]bool{}}
		backend := secureBackend(t, "b", m.ca, true, forNames("a"))
		m.set(chain(service, retriedRoute("c", `retry_on: "unavailable" num_retries { value: 3 }`)), asking("c", context1, backend))
		cc := m.dial(grpc.WithPerRPCCredentials(&bearer{key: "channel-token"}))
		ofCall := &bearer{key: "call-token"}
		eachKind(t, func(t *testing.T, k kind) {
			var n atomic.Int64
			backend.SetBehaviour(func(ctx context.Context, rpc testutils.RPC) error {
				if err := seen.accept(ctx, rpc); err != nil {
					return status.Error(codes.Internal, err.Error())
				}
				if n.Add(1) <= 2 {
					return testutils.TrailersOnly(status.Error(codes.Unavailable, "not yet"))
				}
				return nil
			})
			_, err := call(testutils.Context(t), cc, k, grpc.PerRPCCredentials(ofCall))
			xdstest.NoError(t, err)
			xdstest.Equal(t, "attempts", 3, n.Load())
		})
	})
	xdstest.Parallel(t, "not without TLS", func(t *testing.T) {
		m := newSecureMesh(t)
		backend := testutils.StartBackend(t, "b")
		m.set(chain(service, retriedRoute("c", `retry_on: "unavailable" num_retries { value: 3 }`)), clusterOf("c", backend))
		cc := m.dial(grpc.WithPerRPCCredentials(&bearer{key: "channel-token"}))
		if _, err := call(testutils.Context(t), cc, unary); err == nil || backend.Count() > 0 {
			t.Errorf("error %v, and %d RPCs in plaintext", err, backend.Count())
		}
	})
}

// orcaStreams serves the ORCA service of a backend. Each stream reports a utilization once, which is low while the id is that of idle;
// streams of clients without a certificate fail.
func orcaStreams(t *testing.T, m *secureMesh, id string, idle *atomic.Value, faults chan<- error) *testutils.Backend {
	return secureBackend(t, id, m.ca, true, forNames("a"), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		err := identified(stream.Context())
		if method != orcapb.OpenRcaService_StreamCoreMetrics_FullMethodName {
			err = fmt.Errorf("a stream of %s", method)
		}
		if err != nil {
			select {
			case faults <- err:
			default:
			}
			return status.Error(codes.Unauthenticated, err.Error())
		}
		if err := stream.RecvMsg(new(orcapb.OrcaLoadReportRequest)); err != nil {
			return err
		}
		report := &orcadatapb.OrcaLoadReport{RpsFractional: 100, ApplicationUtilization: 0.8} // weight 125
		if idle.Load() == id {
			report.ApplicationUtilization = 0.2 // weight 500
		}
		if err := stream.SendMsg(report); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}))
}

// gRFC A58 with enable_oob_load_report: the streams on which backends report their load go over the connections of RPCs, and so over
// mTLS, also when the security of the Cluster has changed: only streams that are opened then can tell who is idle.
func TestORCAStreamsOverMutualTLS(t *testing.T) {
	inOneWay(t, "the weights are in the streams of the backends")
	t.Parallel()
	m, faults, idle := newSecureMesh(t), make(chan error, 1), new(atomic.Value)
	idle.Store("a")
	a, b := orcaStreams(t, m, "a", idle, faults), orcaStreams(t, m, "b", idle, faults)
	m.set(chain(service, toCluster("c")))
	var cc *grpc.ClientConn
	for i, fields := range []string{"", `sni: "a"`, `sni: "a" auto_sni_san_validation: true`} {
		next := []string{"a", "b", "a"}[i]
		idle.Store(next)
		c := asking("c", with(xdsmsg.UpstreamTLS("default", "default", "a"), "%s", fields), a, b)
		with(c[0], "load_balancing_policy { %s }", strings.Replace(wrrPolicy, "blackout_period", "enable_oob_load_report { value: true } blackout_period", 1))
		m.set(c)
		if cc == nil {
			cc = m.dial(grpc.WithPerRPCCredentials(&bearer{key: "channel-token"}))
		}
		xdstest.NoError(t, awaitShare(t, cc, next, 0.8))
	}
	select {
	case err := <-faults:
		t.Error(err)
	default:
	}
}
