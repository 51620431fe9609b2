package gcpauthn

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/httpstatus"
	"github.com/dynxds/dynxds/internal/retries"
)

const (
	// skew is how long before a token expires it is not used any more.
	skew = 30 * time.Second
	// early is how long before that the first RPC has it refreshed.
	early = time.Minute
	// fetchTimeout and dialTimeout bound a request to the metadata server, which is in the same machine.
	fetchTimeout, dialTimeout = time.Minute, 5 * time.Second
	// maxToken bounds a token, in bytes: no peer of gRPC takes longer headers.
	maxToken = 16 << 10
)

// token is the token for one audience (gRFC A83, "Call Credentials"). The mutex of the cache guards it.
type token struct {
	audience string
	headers  map[string]string // that RPCs get until expires
	expires  time.Time
	fetching chan struct{} // closed at the end of the request under way; nil: none is
	err      error         // of the last request, the status of RPCs without a token
	failures int           // since the last success
	retry    time.Time     // before which no request begins; zero after a success
}

// get returns the headers for an RPC that starts now. It waits for a token if there is none. The map must not be changed.
func (c *cache) get(ctx context.Context, audience string) (map[string]string, error) {
	c.mu.Lock()
	t := c.of(audience)
	now := time.Now()
	if t.fetching == nil && now.After(t.expires.Add(-early)) && !now.Before(t.retry) {
		t.fetching = make(chan struct{})
		go c.fetch(t)
	}
	headers, fetched, err := t.headers, t.fetching, t.err
	valid := now.Before(t.expires)
	c.mu.Unlock()
	switch {
	case valid:
		return headers, nil
	case fetched == nil:
		return nil, err // Of a request a short time ago.
	}
	select {
	case <-fetched:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.err != nil && !time.Now().Before(t.expires) {
		return nil, t.err
	}
	return t.headers, nil
}

// fetch asks the metadata server for a token.
func (c *cache) fetch(t *token) {
	ctx, cancel := context.WithTimeout(c.ctx, fetchTimeout)
	defer cancel()
	jwt, err := c.ask(ctx, t.audience)
	var expires time.Time
	if err == nil {
		expires, err = expiry(jwt)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(t.fetching)
	t.fetching = nil
	if t.err = err; err != nil {
		t.retry = time.Now().Add(retries.After(t.failures, backoff.DefaultConfig))
		t.failures++
		return
	}
	t.headers = map[string]string{"authorization": "Bearer " + jwt}
	t.expires, t.failures, t.retry = expires.Add(-skew), 0, time.Time{}
}

// client has no proxy, and keeps no connection for an hour.
var client = &http.Client{
	Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ask returns what the metadata server says is the token for the audience, or the status that RPCs end with.
func ask(ctx context.Context, audience string) (jwt string, err error) {
	// The environment variable is that of Google's libraries.
	host := cmp.Or(os.Getenv("GCE_METADATA_HOST"), "metadata.google.internal")
	at := "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/identity?audience=" + url.QueryEscape(audience)
	failed := func(code codes.Code, why any) error {
		return status.Errorf(code, "GCP authentication filter: no token for audience %s from %s: %s",
			bounds.Quote(audience), bounds.Quote(host), bounds.Text(fmt.Sprint(why), bounds.ErrorText))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", failed(codes.Unavailable, err)
	}
	req.Header.Set("Metadata-Flavor", "Google")
	resp, err := client.Do(req)
	if err != nil {
		return "", failed(codes.Unavailable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken+1))
	switch code := httpstatus.Code(resp.StatusCode); {
	case resp.StatusCode != http.StatusOK && code == codes.Unavailable:
		return "", failed(code, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return "", failed(codes.Unauthenticated, resp.Status)
	case err != nil:
		return "", failed(codes.Unavailable, err)
	case len(body) > maxToken:
		return "", failed(codes.Unauthenticated, fmt.Sprintf("the token has more than %d bytes", maxToken))
	}
	return strings.TrimSpace(string(body)), nil
}

// expiry returns when a JWT expires, or the status that RPCs end with.
func expiry(jwt string) (time.Time, error) {
	claims := struct {
		Exp float64 `json:"exp"`
	}{}
	parts := strings.Split(jwt, ".")
	err := errors.New("it does not have three parts")
	if len(parts) == 3 {
		var payload []byte
		if payload, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "=")); err == nil {
			err = json.Unmarshal(payload, &claims)
		}
	}
	// A century ahead, time.Time has room, and nobody waits.
	const latest = 1 << 40
	if err == nil && !(claims.Exp > 0 && claims.Exp < latest) {
		err = errors.New("it has no time of expiry")
	}
	if err != nil {
		return time.Time{}, status.Errorf(codes.Unauthenticated, "GCP authentication filter: the metadata server's token is not valid: %v", err)
	}
	return time.Unix(int64(claims.Exp), 0), nil
}
