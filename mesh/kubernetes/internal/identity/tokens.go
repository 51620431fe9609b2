package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/dynxds/dynxds/internal/bounds"
)

const (
	// maxToken bounds the bytes of a token; those of service accounts have about 1,000.
	maxToken = 16 << 10
	// maxGood and maxBad bound the tokens that are remembered. Bad ones take no room from good ones, which are as many as there are
	// clients, and as many again while tokens are rotated.
	maxGood, maxBad = 2 * bounds.Streams, 10_000
	// goodFor and badFor are how long a verdict counts. A token whose pod or account is deleted counts so much longer.
	goodFor, badFor = time.Minute, 10 * time.Second
	// maxReviews bounds the requests to the API server that are under way.
	maxReviews = 16
	// reviewTime bounds one request.
	reviewTime = 10 * time.Second
)

// Tokens reviews tokens of service accounts, and remembers the verdicts for a while. It is safe for concurrent use.
type Tokens struct {
	reviewer authenticationclient.TokenReviewInterface
	audience string
	turns    *turns
	slots    chan struct{}
	// good has an accepted for each token until the token expires, and bad an error for badFor.
	good, bad *cache.LRUExpireCache
	// reviews are those that wait for their turn, or are under way. Each is for all streams that have the token.
	reviews singleflight.Group
}

// accepted is a good verdict, and when the API server gave it.
type accepted struct {
	at time.Time
	id *Identity
}

// errLeft says that the stream that waited for the turn has ended before it came.
var errLeft = errors.New("the stream has ended")

// NewTokens returns Tokens for tokens with an audience, which make at most so many reviews a second; zero stands for DefaultRate.
func NewTokens(reviewer authenticationclient.TokenReviewInterface, audience string, perSecond int) *Tokens {
	return &Tokens{
		reviewer: reviewer, audience: audience, turns: newTurns(cmp.Or(perSecond, DefaultRate)), slots: make(chan struct{}, maxReviews),
		good: cache.NewLRUExpireCache(maxGood), bad: cache.NewLRUExpireCache(maxBad),
	}
}

// Review returns who a token is for that a client presents. It may wait for the turn of the client; ctx is that of the client's
// stream. The errors are those of a stream.
func (t *Tokens) Review(ctx context.Context, from *peer.Peer, token string) (*Identity, error) {
	if token == "" || len(token) > maxToken {
		return nil, status.Errorf(codes.Unauthenticated, "the client's token has %d bytes, want 1 to %d", len(token), maxToken)
	}
	if until, ok := expiry(token); ok && !time.Now().Before(until) {
		return nil, status.Errorf(codes.Unauthenticated, "the client's token has expired, at %s; open another stream with its successor", until.UTC().Format(time.RFC3339))
	}
	sum := sha256.Sum256([]byte(token))
	key := string(sum[:])
	for {
		if id, err := t.known(key); id != nil || err != nil {
			return id, err
		}
		var left error // if this stream waits for the turn
		shared := t.reviews.DoChan(key, func() (any, error) {
			turn, err := t.turns.wait(ctx, from)
			if left = err; err != nil {
				return nil, errLeft
			}
			defer turn.end()
			return t.review(key, token, turn)
		})
		select {
		case outcome := <-shared:
			if left != nil {
				// Without the context's error, its deadline is before the turn.
				return nil, status.FromContextError(cmp.Or(ctx.Err(), context.DeadlineExceeded)).Err()
			}
			if outcome.Err != errLeft {
				id, _ := outcome.Val.(*Identity)
				return id, outcome.Err
			}
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// known returns a verdict that counts, if there is one.
func (t *Tokens) known(key string) (*Identity, error) {
	now := time.Now()
	if last := t.accepted(key, now); last != nil && now.Sub(last.at) <= goodFor {
		return last.id, nil
	}
	if err, is := t.bad.Get(key); is {
		return nil, err.(error)
	}
	return nil, nil
}

// accepted returns the good verdict on a token that has not expired, or nil.
func (t *Tokens) accepted(key string, now time.Time) *accepted {
	last, is := t.good.Get(key)
	if !is || !now.Before(last.(*accepted).id.Until) {
		return nil
	}
	return last.(*accepted)
}

// review asks the API server, in the turn of a connection. While the API server does not answer, a good verdict counts until the
// token expires.
func (t *Tokens) review(key, token string, turn *turn) (*Identity, error) {
	answer, err := t.ask(token)
	now := time.Now()
	if err != nil {
		if last := t.accepted(key, now); last != nil {
			return last.id, nil
		}
		return nil, status.Errorf(codes.Unavailable, "the API server does not review the client's token: %v", err)
	}
	id, refused := t.judge(answer, token)
	turn.judged(refused == nil)
	if refused != nil {
		t.good.Remove(key)
		t.bad.Add(key, refused, badFor)
		return nil, refused
	}
	t.good.Add(key, &accepted{at: now, id: id}, id.Until.Sub(now))
	return id, nil
}

// ask asks the API server, when there is a slot. Others may wait for the verdict too, so no stream's context bounds it.
func (t *Tokens) ask(token string) (*authenticationv1.TokenReview, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewTime)
	defer cancel()
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return t.reviewer.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
		Token: token, Audiences: []string{t.audience},
	}}, metav1.CreateOptions{})
}

// The names of what a TokenReview says of a pod.
const (
	podExtra  = "authentication.kubernetes.io/pod-name"
	nodeExtra = "authentication.kubernetes.io/node-name"
	accounts  = "system:serviceaccount:"
)

// judge returns who a reviewed token is for.
func (t *Tokens) judge(review *authenticationv1.TokenReview, token string) (*Identity, error) {
	s := review.Status
	if !s.Authenticated || !slices.Contains(s.Audiences, t.audience) {
		return nil, status.Errorf(codes.Unauthenticated, "the API server does not accept the client's token for the audience %q: %s",
			t.audience, bounds.Text(s.Error, bounds.ErrorText))
	}
	namespace, account, ok := strings.Cut(strings.TrimPrefix(s.User.Username, accounts), ":")
	if !ok || !strings.HasPrefix(s.User.Username, accounts) {
		return nil, status.Errorf(codes.PermissionDenied, "the client's token is that of %q, and not of a service account", bounds.Text(s.User.Username, bounds.ErrorText))
	}
	until, ok := expiry(token)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "the client's token never expires: use a projected one")
	}
	id := &Identity{Namespace: namespace, Account: account, Until: until}
	if values := s.User.Extra[podExtra]; len(values) == 1 {
		id.Pod = values[0]
	}
	if values := s.User.Extra[nodeExtra]; len(values) == 1 {
		id.Node = values[0]
	}
	return id, nil
}

// expiry returns the time at which a token expires, which the API server has accepted.
func expiry(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Expires == 0 {
		return time.Time{}, false
	}
	return time.Unix(claims.Expires, 0), true
}
