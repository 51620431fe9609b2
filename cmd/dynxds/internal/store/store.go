package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/exit"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
)

// Store is a store in etcd. Its methods are safe for concurrent use.
type Store struct {
	options Options
	config  clientv3.Config
	prefix  string
	timeout time.Duration

	// watches counts those that were opened.
	watches atomic.Uint64

	mu sync.Mutex
	// client is nil before the first use, and after a login that failed. Its password is that of config.
	client *clientv3.Client
	closed bool
}

// Document is the text of a document file.
type Document struct {
	Data []byte
	// ModRevision is the revision that it was last changed at, and CreateRevision that at which it began
	// to be there.
	ModRevision, CreateRevision int64
}

func documentOf(kv *mvccpb.KeyValue) Document {
	return Document{Data: kv.Value, ModRevision: kv.ModRevision, CreateRevision: kv.CreateRevision}
}

// Snapshot is what a revision has, and which etcd it was read from.
type Snapshot struct {
	Head
	// Documents are by name, as in a folder.
	Documents map[string]Document
	Good      Good
	// Unknown are the keys below docs that are no documents, in order.
	Unknown []string
}

// ErrCompacted is the error of a revision that etcd has compacted.
var ErrCompacted = errors.New("etcd has compacted the revision")

// Open checks the options. It makes no connection: etcd may be unreachable.
func Open(o Options) (*Store, error) {
	config, prefix, err := o.config()
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	return &Store{options: o, config: config, prefix: prefix, timeout: o.timeout()}, nil
}

// Close ends the connections, and Watches.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.client != nil {
		s.client.Close() // its error is that its context has ended, or that of a connection
	}
}

// Client returns the client of etcd, for those who write. It logs in if need be.
func (s *Store) Client() (*clientv3.Client, error) {
	client, err := s.login()
	if err != nil {
		return nil, s.fault("connect to", err)
	}
	return client, nil
}

func (s *Store) login() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errors.New("this store was closed")
	case s.client != nil:
		return s.client, nil
	}
	_, password, err := s.options.login() // it may have changed since the last attempt
	if err != nil {
		return nil, err
	}
	s.config.Password = password
	s.client, err = clientv3.New(s.config)
	return s.client, err
}

// forgetLogin ends the client if the password has changed since it logged in: etcd's client never takes another one.
// What it did fails, and is done again, as in any outage.
func (s *Store) forgetLogin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, password, err := s.options.login(); s.client != nil && !s.closed && err == nil && password != s.config.Password {
		s.client.Close()
		s.client = nil
	}
}

// Prefix returns the prefix of all keys, without a slash at its end.
func (s *Store) Prefix() string { return s.prefix }

// Dir names the store to people, and is the "folder" of its documents. It leaves out the members:
// replicas may know different ones, and resources must not differ.
func (s *Store) Dir() string { return "etcd:" + s.prefix + strings.TrimSuffix(docs, "/") }

const docs = "/docs/"

// Key returns the key of a document.
func (s *Store) Key(name string) string { return s.prefix + docs + name }

// name returns the document of a key below docs; ok is false if it is none.
func (s *Store) name(key []byte) (name string, ok bool) {
	name = strings.TrimPrefix(string(key), s.prefix+docs)
	return name, folder.IsName(name)
}

// Timeout returns a context for one request.
func (s *Store) Timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// share is the time that one member has for a request.
func (s *Store) share() time.Duration { return s.timeout / time.Duration(len(s.config.Endpoints)) }

// get reads. etcd's client asks its members in turn, and another one if one is unreachable; one that is only
// slow is given up early enough to ask the others within Options.Timeout.
func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.Timeout(ctx)
	defer cancel()
	for left := len(s.config.Endpoints); ; left-- {
		attempt, cancel := context.WithTimeout(ctx, s.share())
		response, err := client.Get(attempt, key, options...)
		cancel()
		switch {
		case err == nil:
			return response, nil
		case left <= 1 || ctx.Err() != nil || attempt.Err() == nil:
			return nil, s.fault("read", err)
		}
	}
}

// pages reads all keys below a part of the store, as of a revision, zero for the present one. It returns the revision,
// and which etcd answered first. size bounds the keys in one response of etcd.
func (s *Store) pages(ctx context.Context, below string, revision, size int64, each func(*mvccpb.KeyValue) error) (head Head, err error) {
	begin, end := s.prefix+below, clientv3.GetPrefixRangeEnd(s.prefix+below)
	for {
		page, err := s.get(ctx, begin, clientv3.WithRange(end), clientv3.WithLimit(size), clientv3.WithRev(revision))
		if err != nil {
			return Head{}, err
		}
		if head.Revision == 0 {
			head = headOf(page.Header)
			head.Revision = cmp.Or(revision, head.Revision)
			revision = head.Revision // all pages are of one revision
		}
		for _, kv := range page.Kvs {
			if err := each(kv); err != nil {
				return Head{}, err
			}
		}
		if !page.More {
			return head, nil
		}
		begin = string(append(page.Kvs[len(page.Kvs)-1].Key, 0))
	}
}

// documentPage bounds the documents in one response.
const documentPage = 1000

// Load returns the present documents.
func (s *Store) Load(ctx context.Context) (*Snapshot, error) {
	snapshot, err := s.LoadAt(ctx, 0)
	if err == nil {
		snapshot.Good, err = s.goodAt(ctx, snapshot.Revision)
	}
	if err != nil {
		return nil, err
	}
	return snapshot, nil
}

// LoadAt returns the documents of a revision, without Good. The error is ErrCompacted if etcd no longer has it.
func (s *Store) LoadAt(ctx context.Context, revision int64) (*Snapshot, error) {
	snapshot := &Snapshot{Documents: map[string]Document{}}
	var err error
	snapshot.Head, err = s.pages(ctx, docs, revision, documentPage, func(kv *mvccpb.KeyValue) error {
		if name, ok := s.name(kv.Key); ok {
			snapshot.Documents[name] = documentOf(kv)
		} else {
			snapshot.Unknown = append(snapshot.Unknown, string(kv.Key))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return snapshot, nil
}

// Head is how far etcd is, and which etcd it is.
type Head struct {
	Revision int64
	// Cluster is the ID of the cluster, Term the term of its leader. One that is restored from a backup has
	// another ID, or begins with its terms where the first one began.
	Cluster, Term uint64
}

// Head returns the present one.
func (s *Store) Head(ctx context.Context) (Head, error) {
	response, err := s.get(ctx, s.prefix+docs, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return Head{}, err
	}
	return headOf(response.Header), nil
}

func headOf(h *etcdserverpb.ResponseHeader) Head { return Head{h.Revision, h.ClusterId, h.RaftTerm} }

// Continues reports whether an etcd with this head may have had another one before: its revisions and terms only
// grow, unless it is restored from a backup. The cluster of the other one may be unknown, zero.
func (h Head) Continues(before Head) bool {
	return (h.Cluster == before.Cluster || before.Cluster == 0) && h.Term >= before.Term && h.Revision >= before.Revision
}

// fault says what could not be done with the store.
func (s *Store) fault(do string, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		err = ErrCompacted
	case errors.Is(err, rpctypes.ErrNoSpace):
		err = fmt.Errorf("%w: compact and defragment etcd, or raise its --quota-backend-bytes, and then \"etcdctl alarm disarm\"", err)
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrInvalidAuthToken):
		s.forgetLogin()
		err = fmt.Errorf("%w: is the password, of --store-password-file or %s, that of the user %s? The file is read again when it has changed",
			err, PasswordEnv, s.options.User)
	case errors.Is(err, context.DeadlineExceeded):
		if why := s.reach(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		} else {
			err = fmt.Errorf("%w: it accepts connections, and did not answer in %s; is it etcd, and has it a quorum? --store-timeout allows more time", err, s.timeout)
		}
	}
	fault := fmt.Errorf("cannot %s the store at %s: %w", do, strings.Join(s.config.Endpoints, ", "), err)
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable {
		return exit.With(exit.Unreachable, fault)
	}
	return fault
}
