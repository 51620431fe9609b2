package identity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// Who clients are, how long that counts, and how often the API server is asked. The steps are:
//
//	token NAME LIFETIME           a token that expires; without a lifetime it is no JWT, and with 0s it has no end
//	server good|bad|gone          what the API server answers
//	server USER AUDIENCE POD NODE it accepts tokens, and says this of them
//	identify TOKEN CLAIM=VALUE    what a client with a token and metadata is known as, and for how long; "-" is no token
//	wait DURATION
func TestScripts(t *testing.T) { golden.Scripts(t, "testdata/*.txt", 0, beginScript) }

func beginScript(t testing.TB) (step func(string) string) {
	r, tokens := &reviewer{answer: good}, map[string]string{}
	v := Verifier{Tokens: NewTokens(r, "dynxds", 0), ZoneOf: func(node string) string { return map[string]string{"n1": "zone-1"}[node] }}
	return func(words string) string {
		fields := strings.Fields(words)
		switch fields[0] {
		case "token":
			tokens[fields[1]] = "opaque"
			if len(fields) > 2 {
				after, err := time.ParseDuration(fields[2])
				xdstest.NoError(t, err)
				if tokens[fields[1]] = token(fields[1], after); after == 0 {
					tokens[fields[1]] = "header.e30.signature"
				}
			}
		case "server":
			answers := map[string]func(string) (authenticationv1.TokenReviewStatus, error){"good": good, "bad": bad, "gone": gone}
			if answer := answers[fields[1]]; answer != nil {
				r.set(answer)
				break
			}
			s := authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: fields[2:3], User: authenticationv1.UserInfo{Username: fields[1]}}
			if len(fields) > 3 {
				s.User.Extra = map[string]authenticationv1.ExtraValue{podExtra: fields[3:4], nodeExtra: fields[4:5]}
			}
			r.set(func(string) (authenticationv1.TokenReviewStatus, error) { return s, nil })
		case "wait":
			after, err := time.ParseDuration(fields[1])
			xdstest.NoError(t, err)
			time.Sleep(after)
		case "identify":
			ctx := peer.NewContext(t.Context(), from(1, 1))
			if fields[1] != "-" {
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+tokens[fields[1]]))
			}
			claims := map[string]any{}
			for _, claim := range fields[2:] {
				key, value, _ := strings.Cut(claim, "=")
				claims[key] = value
			}
			of, err := structpb.NewStruct(claims)
			xdstest.NoError(t, err)
			node, until, err := v.Identify(ctx, &corepb.Node{Metadata: of})
			reviews := fmt.Sprintf("; %d reviews", r.count())
			if err != nil {
				return status.Code(err).String() + ": " + status.Convert(err).Message() + reviews
			}
			var tags []string
			for _, key := range []string{"namespace", "service", "service_account", "pod", "node", "zone"} {
				if tag := node.GetMetadata().GetFields()[key]; tag != nil {
					tags = append(tags, key+"="+tag.GetStringValue())
				}
			}
			return strings.Join(tags, " ") + " for " + time.Until(until).Round(time.Second).String() + reviews
		default:
			xdstest.NoError(t, errors.New("no step: "+words))
		}
		return ""
	}
}
