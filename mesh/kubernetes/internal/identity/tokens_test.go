package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// reviewer is what an API server answers in these tests, which are about how often it is asked. The tests of the command have a
// real one.
type reviewer struct {
	mu      sync.Mutex
	reviews int
	answer  func(token string) (authenticationv1.TokenReviewStatus, error)
}

func (r *reviewer) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.mu.Lock()
	r.reviews++
	answer := r.answer
	r.mu.Unlock()
	s, err := answer(review.Spec.Token)
	return &authenticationv1.TokenReview{Status: s}, err
}

func (r *reviewer) set(answer func(string) (authenticationv1.TokenReviewStatus, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *reviewer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reviews
}

// good accepts every token.
func good(string) (authenticationv1.TokenReviewStatus, error) {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{"dynxds"}, User: authenticationv1.UserInfo{Username: "system:serviceaccount:shop:frontend"},
	}, nil
}

func bad(string) (authenticationv1.TokenReviewStatus, error) {
	return authenticationv1.TokenReviewStatus{Error: "unknown key"}, nil
}

func gone(string) (authenticationv1.TokenReviewStatus, error) {
	return authenticationv1.TokenReviewStatus{}, errors.New("connection refused")
}

// token expires after a time.
func token(name string, after time.Duration) string {
	claims := fmt.Sprintf(`{"sub": %q, "exp": %d}`, name, time.Now().Add(after).Unix())
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

// codeOf reviews a token.
func codeOf(t *Tokens, peer, token string) codes.Code {
	_, err := t.Review(context.Background(), peer, token)
	return status.Code(err)
}

// A good verdict counts for a minute, a bad one for ten seconds; while the API server is gone, a good one counts until the token
// expires.
func TestVerdictsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{answer: good}
		tokens, one := NewTokens(r, "dynxds"), token("one", 5*time.Minute)
		check := func(what string, want codes.Code, reviews int) {
			t.Helper()
			xdstest.Equal(t, what, want, codeOf(tokens, "peer", one))
			xdstest.Equal(t, what+": reviews", reviews, r.count())
		}
		check("first", codes.OK, 1)
		check("again", codes.OK, 1)
		time.Sleep(goodFor + time.Second)
		check("a minute later", codes.OK, 2)
		r.set(gone)
		time.Sleep(goodFor + time.Second)
		check("without an API server", codes.OK, 3)
		time.Sleep(4 * time.Minute)
		check("without an API server, expired", codes.Unavailable, 4)
		check("a failure is not remembered", codes.Unavailable, 5)
		r.set(bad)
		check("bad", codes.Unauthenticated, 6)
		check("bad again", codes.Unauthenticated, 6)
		time.Sleep(badFor + time.Second)
		check("bad, later", codes.Unauthenticated, 7)
		synctest.Wait()
	})
}

// A token that expires within the minute is not good for longer.
func TestVerdictsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{answer: good}
		tokens, one := NewTokens(r, "dynxds"), token("one", 20*time.Second)
		xdstest.Equal(t, "code", codes.OK, codeOf(tokens, "peer", one))
		r.set(bad)
		time.Sleep(21 * time.Second)
		xdstest.Equal(t, "code of an expired token", codes.Unauthenticated, codeOf(tokens, "peer", one))
		synctest.Wait()
	})
}

// Streams with one token share a review, and a peer with many bad ones neither keeps others waiting nor fills the memory.
func TestReviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{}
		r.set(func(token string) (authenticationv1.TokenReviewStatus, error) {
			time.Sleep(time.Second)
			if token == "bad" {
				return bad(token)
			}
			return good(token)
		})
		tokens, shared := NewTokens(r, "dynxds"), token("shared", time.Hour)
		var running sync.WaitGroup
		for range 100 {
			running.Go(func() { xdstest.Equal(t, "code", codes.OK, codeOf(tokens, "peer", shared)) })
		}
		running.Wait()
		xdstest.Equal(t, "reviews of a token that many streams have", 1, r.count())

		refused := 0
		var mu sync.Mutex
		for i := range 100 {
			running.Go(func() {
				if codeOf(tokens, "hostile", token(fmt.Sprint(i), time.Hour)) == codes.ResourceExhausted {
					mu.Lock()
					defer mu.Unlock()
					refused++
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		xdstest.Equal(t, "another peer's code", codes.OK, codeOf(tokens, "peer", token("other", time.Hour)))
		xdstest.Equal(t, "its wait", time.Second, time.Since(began))
		running.Wait()
		xdstest.Equal(t, "tokens of one peer that are refused", 100-maxOfPeer, refused)

		r.set(bad)
		for i := range maxVerdicts + 100 {
			codeOf(tokens, "hostile", fmt.Sprintf("token %d", i))
		}
		synctest.Wait()
		tokens.mu.Lock()
		remembered, under := len(tokens.verdicts), len(tokens.ofPeer)
		tokens.mu.Unlock()
		if remembered > maxVerdicts {
			t.Errorf("%d tokens are remembered", remembered)
		}
		xdstest.Equal(t, "peers with reviews under way", 0, under)
		xdstest.Equal(t, "code of a large token", codes.Unauthenticated, codeOf(tokens, "peer", string(make([]byte, maxToken+1))))
		synctest.Wait()
	})
}

// Tokens of people, of other audiences and without an end are refused.
func TestTokensThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			change func(*authenticationv1.TokenReviewStatus)
			token  string
			want   codes.Code
		}{
			"person":           {func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "admin" }, token("a", time.Hour), codes.PermissionDenied},
			"no account":       {func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:x" }, token("a", time.Hour), codes.PermissionDenied},
			"another audience": {func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"other"} }, token("a", time.Hour), codes.Unauthenticated},
			"no audience":      {func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil }, token("a", time.Hour), codes.Unauthenticated},
			"no end":           {func(*authenticationv1.TokenReviewStatus) {}, "header.e30.signature", codes.Unauthenticated},
			"no JWT":           {func(*authenticationv1.TokenReviewStatus) {}, "opaque", codes.Unauthenticated},
		} {
			r := &reviewer{answer: func(token string) (authenticationv1.TokenReviewStatus, error) {
				s, err := good(token)
				c.change(&s)
				return s, err
			}}
			xdstest.Equal(t, name, c.want, codeOf(NewTokens(r, "dynxds"), "peer", c.token))
		}
		synctest.Wait()
	})
}

func TestNamespaceOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"greeter": "", "greeter:8080": "", "greeter.shop": "shop", "greeter.shop:8080": "shop", "greeter.shop.svc.cluster.local:grpc": "shop",
		"greeter.shop:8080;no-such-service": "shop", "xdstp://mesh/envoy.config.listener.v3.Listener/greeter.shop:8080": "shop",
		"xdstp://mesh/envoy.config.listener.v3.Listener/greeter.shop%3A8080?a=b": "shop",
	} {
		xdstest.Equal(t, name, want, namespaceOf(name))
	}
}
