package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/folder"
)

// Store is a store in etcd. Its methods are safe for concurrent use.
type Store struct {
	options Options
	config  clientv3.Config
	prefix  string

	mu sync.Mutex
	// client is nil before the first use, and after a login that failed. used is the configuration of the client, whose files may have changed since.
	client *clientv3.Client
	used   clientv3.Config
	closed bool
}

// Open checks the options. It makes no connection: etcd may be unreachable.
func Open(o Options) (*Store, error) {
	config, prefix, err := o.config()
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return &Store{options: o, config: config, prefix: prefix}, nil
}

// Close ends the connections.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.client != nil {
		s.client.Close() // its error is that its context has ended, or that of a connection
	}
}

// connect returns the client of etcd. It logs in if need be.
func (s *Store) connect() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errors.New("this store was closed")
	case s.client != nil:
		return s.client, nil
	}
	config, _, err := s.options.config() // the files may have changed since the last attempt
	if err != nil {
		return nil, err
	}
	s.used = config
	s.client, err = clientv3.New(config)
	return s.client, err
}

// forget ends the client if the password or the authorities have changed since it was made: etcd's client never takes others.
// What it did fails, and is done again, as in any outage.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	config, _, err := s.options.config()
	if s.client == nil || s.closed || err != nil {
		return
	}
	if config.Password != s.used.Password || config.TLS != nil && !config.TLS.RootCAs.Equal(s.used.TLS.RootCAs) {
		s.client.Close()
		s.client = nil
	}
}

// Dir names the store to people, and is the "folder" of its documents. It leaves out the members:
// replicas may know different ones, and resources must not differ.
func (s *Store) Dir() string { return "etcd:" + strings.TrimSuffix(s.docs(), "/") }

// docs is the prefix of the keys of documents.
func (s *Store) docs() string { return s.prefix + "/docs/" }

// name returns the document of a key below docs; ok is false if it is none.
func (s *Store) name(key []byte) (name string, ok bool) {
	name = strings.TrimPrefix(string(key), s.docs())
	return name, folder.IsName(name)
}

// timeout returns a context for one request.
func (s *Store) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.options.timeout())
}

// retryAfter is the pause after a member could not be reached, or has no leader.
const retryAfter = 100 * time.Millisecond

// get reads, and tries again for Options.Timeout while etcd is unavailable. etcd's client asks its members in turn; one
// that does not answer is given up early enough to ask the others, too.
func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := s.timeout(ctx)
	defer cancel()
	share := s.options.timeout() / time.Duration(len(s.config.Endpoints))
	var reason error // the last one that says more than that time was up
	for {
		response, err := s.getOnce(ctx, share, key, options...)
		if err == nil {
			return response, nil
		}
		late := errors.Is(err, context.DeadlineExceeded)
		if reason == nil || !late {
			reason = err
		}
		if !late && status.Code(err) != codes.Unavailable {
			return nil, s.fault("read", err)
		}
		if retries.Wait(ctx, retryAfter) != nil {
			return nil, s.fault("read", reason)
		}
	}
}

func (s *Store) getOnce(ctx context.Context, share time.Duration, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	client, err := s.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	return client.Get(ctx, key, options...)
}

// head is how far etcd is, and which etcd it is.
type head struct {
	revision int64
	// cluster is the ID of the cluster, term the term of its leader. One that is restored from a backup has
	// another ID, or begins with its terms where the first one began.
	cluster, term uint64
}

func headOf(h *etcdserverpb.ResponseHeader) head { return head{h.Revision, h.ClusterId, h.RaftTerm} }

// continues reports whether an etcd with this head may have had another one before: its revisions and terms only
// grow, unless it is restored from a backup.
func (h head) continues(before head) bool {
	return h.cluster == before.cluster && h.term >= before.term && h.revision >= before.revision
}

// fault says what could not be done with the store.
func (s *Store) fault(do string, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		err = fmt.Errorf("%w: compact and defragment etcd, or raise its --quota-backend-bytes, and then \"etcdctl alarm disarm\"", err)
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrInvalidAuthToken):
		s.forget()
		err = fmt.Errorf("%w: is the password, of --store-password-file or %s, that of the user %s? The file is read again when it has changed",
			err, PasswordEnv, s.options.User)
	case strings.Contains(err.Error(), "x509: "):
		s.forget()
	case strings.Contains(err.Error(), "error reading server preface") && s.config.TLS == nil:
		err = fmt.Errorf("%w: is it hung? Or, if etcd speaks TLS, use %s", err, tlsScheme)
	case s.config.TLS != nil && s.options.Cert == "" && wantsCertificate(err):
		err = fmt.Errorf("%w: if etcd wants a certificate of its clients, add --store-cert and --store-key", err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: it did not answer in %s; is it etcd, and has it a quorum? --store-timeout allows more time", err, s.options.timeout())
	}
	fault := fmt.Errorf("cannot %s the store at %s: %w", do, strings.Join(s.config.Endpoints, ", "), err)
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable {
		return exit.With(exit.Unreachable, fault)
	}
	return fault
}

// wantsCertificate reports whether an error may be that of a member that wants a certificate. With TLS 1.3 it ends the
// connection after the handshake, and whether the reason is read before that is chance.
func wantsCertificate(err error) bool {
	return slices.ContainsFunc([]string{"certificate required", "broken pipe", "connection reset"}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
}
