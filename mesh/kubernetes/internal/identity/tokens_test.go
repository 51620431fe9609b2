package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
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

// from is a connection of a host.
func from(host, port int) *peer.Peer {
	return &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, byte(host>>8), byte(host)), Port: port}}
}

// codeOf reviews a token that a client presents.
func codeOf(t *Tokens, from *peer.Peer, token string) codes.Code {
	_, err := t.Review(context.Background(), from, token)
	return status.Code(err)
}

// Streams with one token share a review, whichever of them ends.
func TestReviewsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{}
		r.set(func(token string) (authenticationv1.TokenReviewStatus, error) {
			time.Sleep(time.Second)
			if token == "bad" {
				return bad(token)
			}
			return good(token)
		})
		tokens, shared := NewTokens(r, "dynxds", 0), token("shared", time.Hour)
		var running sync.WaitGroup
		for range 100 {
			running.Go(func() { xdstest.Equal(t, "code", codes.OK, codeOf(tokens, from(1, 1), shared)) })
		}
		running.Wait()
		xdstest.Equal(t, "reviews of a token that many streams have", 1, r.count())

		xdstest.Equal(t, "code of a bad token", codes.Unauthenticated, codeOf(tokens, from(1, 1), "bad"))
		ctx, end := context.WithCancel(t.Context())
		other := token("other", time.Hour)
		running.Go(func() {
			_, err := tokens.Review(ctx, from(1, 1), other)
			xdstest.Equal(t, "code of a stream that ends before its turn", codes.Canceled, status.Code(err))
		})
		synctest.Wait()
		running.Go(func() {
			xdstest.Equal(t, "code of another stream with the token", codes.OK, codeOf(tokens, from(1, 2), other))
		})
		synctest.Wait()
		end()
		running.Wait()
		xdstest.Equal(t, "reviews", 3, r.count())

		for i := range 2 * DefaultRate / ofSource {
			running.Go(func() { codeOf(tokens, from(1, 10+i), token(fmt.Sprint(i), time.Hour)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := tokens.Review(ctx, from(1, 3), token("in a hurry", time.Hour))
		xdstest.Equal(t, "code of a stream whose deadline is before its turn", codes.DeadlineExceeded, status.Code(err))
		running.Wait()
		xdstest.Equal(t, "code of a large token", codes.Unauthenticated, codeOf(tokens, from(1, 1), string(make([]byte, maxToken+1))))
	})
}

// A host with many connections that present bad tokens at a stretch costs the API server little, and its good tokens, and those of
// other hosts, wait for a short time. None is refused because of others.
func TestReviewsHaveARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{answer: func(token string) (authenticationv1.TokenReviewStatus, error) {
			time.Sleep(5 * time.Millisecond)
			if strings.HasPrefix(token, "bad") {
				return bad(token)
			}
			return good(token)
		}}
		tokens := NewTokens(r, "dynxds", 0)
		ctx, stop := context.WithCancel(t.Context())
		var running, waiting sync.WaitGroup
		flood := func(host, port int) {
			running.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					_, err := tokens.Review(ctx, from(host, port), fmt.Sprintf("bad %d %d %d", host, port, i))
					if code := status.Code(err); code != codes.Unauthenticated && ctx.Err() == nil {
						t.Errorf("a bad token is %s", code)
						return
					}
				}
			})
		}
		for connection := range 16 {
			flood(1, connection)
		}
		time.Sleep(10 * time.Second)
		if n := r.count(); n > 16*5 {
			t.Errorf("16 connections with bad tokens cause %d reviews in 10 s", n)
		}
		began := time.Now()
		for i := range 20 {
			waiting.Go(func() {
				for host := range 2 {
					xdstest.Equal(t, "code of a good token beside bad ones", codes.OK, codeOf(tokens, from(1+host, 100+i), token(fmt.Sprint(i, host), time.Hour)))
				}
			})
		}
		waiting.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("good tokens wait for %s", took)
		}

		// Connections of which each presents one, of a host and of many, have a rate too.
		for _, c := range []struct{ hosts, most int }{{1, DefaultRate / ofSource}, {1000, DefaultRate}} {
			before := r.count()
			for i := range 2000 {
				running.Go(func() {
					_, _ = tokens.Review(ctx, from(10+i%c.hosts, 1000+i), fmt.Sprintf("bad %d of %d", i, c.hosts))
				})
			}
			time.Sleep(4 * time.Second)
			// What the first second may have at once is counted beside the rate.
			if n := r.count() - before; n > 6*c.most {
				t.Errorf("%d hosts cause %d reviews in 4 s", c.hosts, n)
			}
		}
		stop()
		running.Wait()
		time.Sleep(reviewTime) // reviews that are under way end
	})
}

// Bad tokens take no room from good ones: these count until they expire while the API server is gone, however many bad ones there
// were before.
func TestGoodVerdictsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reviewer{answer: good}
		tokens, one := NewTokens(r, "dynxds", 1_000_000), token("one", time.Hour)
		xdstest.Equal(t, "code", codes.OK, codeOf(tokens, from(1, 1), one))
		r.set(bad)
		time.Sleep(2 * goodFor)
		for i := range maxBad + 100 {
			codeOf(tokens, from(2, i), fmt.Sprintf("token %d", i))
		}
		r.set(gone)
		time.Sleep(50 * time.Minute)
		xdstest.Equal(t, "code without an API server", codes.OK, codeOf(tokens, from(1, 1), one))
		time.Sleep(10 * time.Minute)
		xdstest.Equal(t, "code of an expired token", codes.Unauthenticated, codeOf(tokens, from(1, 1), one))
	})
}
