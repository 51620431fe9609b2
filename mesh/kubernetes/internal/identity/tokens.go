package identity

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/bounds"
)

const (
	// maxToken bounds the bytes of a token; those of service accounts have about 1,000.
	maxToken = 16 << 10
	// maxVerdicts bounds the tokens that are remembered.
	maxVerdicts = 10_000
	// goodFor and badFor are how long a verdict counts. A token whose pod or account is deleted counts so much longer.
	goodFor, badFor = time.Minute, 10 * time.Second
	// maxReviews bounds the requests to the API server that are under way, and maxOfPeer those for one peer: another's bad tokens
	// must not keep good ones waiting.
	maxReviews, maxOfPeer = 16, 4
	// reviewTime bounds one request.
	reviewTime = 10 * time.Second
)

// Reviewer creates TokenReviews: the client of client-go.
type Reviewer interface {
	Create(context.Context, *authenticationv1.TokenReview, metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// Tokens reviews tokens of service accounts, and remembers the verdicts for a while. It is safe for concurrent use.
type Tokens struct {
	reviewer Reviewer
	audience string
	slots    chan struct{}

	mu       sync.Mutex
	verdicts map[[sha256.Size]byte]*verdict
	ofPeer   map[string]int
}

// verdict is what is known of a token. Its fields but known are set before known is closed.
type verdict struct {
	known chan struct{}
	// at is when it was found; id and err are the outcome.
	at  time.Time
	id  *Identity
	err error
	// stays says that it counts, for a while; else only those get it who waited for it.
	stays bool
}

// NewTokens returns Tokens for tokens with an audience.
func NewTokens(reviewer Reviewer, audience string) *Tokens {
	return &Tokens{
		reviewer: reviewer, audience: audience, slots: make(chan struct{}, maxReviews),
		verdicts: map[[sha256.Size]byte]*verdict{}, ofPeer: map[string]int{},
	}
}

// Review returns who a token is for. The errors are those of a stream.
func (t *Tokens) Review(ctx context.Context, peer, token string) (*Identity, error) {
	if token == "" || len(token) > maxToken {
		return nil, status.Errorf(codes.Unauthenticated, "the client's token has %d bytes, want 1 to %d", len(token), maxToken)
	}
	key := sha256.Sum256([]byte(token))
	t.mu.Lock()
	v := t.verdicts[key]
	if v == nil || v.over(time.Now()) {
		if t.ofPeer[peer] == maxOfPeer {
			t.mu.Unlock()
			return nil, status.Error(codes.ResourceExhausted, "too many tokens of this client are being reviewed")
		}
		t.ofPeer[peer]++
		v = &verdict{known: make(chan struct{})}
		last := t.verdicts[key]
		t.remember(key, v)
		go t.review(key, peer, token, v, last)
	}
	t.mu.Unlock()
	select {
	case <-v.known:
		return v.id, v.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// over reports whether a verdict counts no more.
func (v *verdict) over(now time.Time) bool {
	select {
	case <-v.known:
	default:
		return false
	}
	if v.err != nil {
		return !v.stays || now.Sub(v.at) > badFor
	}
	return now.Sub(v.at) > goodFor || !now.Before(v.id.Until)
}

// remember makes room for a verdict: what is over goes first, then any. The caller holds the lock.
func (t *Tokens) remember(key [sha256.Size]byte, v *verdict) {
	if len(t.verdicts) >= maxVerdicts {
		now := time.Now()
		for other, old := range t.verdicts {
			if old.over(now) {
				delete(t.verdicts, other)
			}
		}
		for other := range t.verdicts {
			if len(t.verdicts) < maxVerdicts {
				break
			}
			delete(t.verdicts, other)
		}
	}
	t.verdicts[key] = v
}

// review asks the API server. last is the verdict before, or nil: while the API server does not answer, a good one counts until
// the token expires.
func (t *Tokens) review(key [sha256.Size]byte, peer, token string, v, last *verdict) {
	// Others may wait for the verdict too, so no stream's context bounds it.
	ctx, cancel := context.WithTimeout(context.Background(), reviewTime)
	defer cancel()
	var review *authenticationv1.TokenReview
	var err error
	select {
	case t.slots <- struct{}{}:
		review, err = t.reviewer.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
			Token: token, Audiences: []string{t.audience},
		}}, metav1.CreateOptions{})
		<-t.slots
	case <-ctx.Done():
		err = ctx.Err()
	}
	now := time.Now()
	switch {
	case err == nil:
		v.id, v.err = t.judge(review, token)
		v.stays = true
	case last != nil && last.id != nil && now.Before(last.id.Until):
		v.id = last.id
	default:
		v.err = status.Errorf(codes.Unavailable, "the API server does not review the client's token: %v", err)
	}
	v.at = now
	t.mu.Lock()
	defer t.mu.Unlock()
	close(v.known)
	if t.ofPeer[peer]--; t.ofPeer[peer] == 0 {
		delete(t.ofPeer, peer)
	}
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
