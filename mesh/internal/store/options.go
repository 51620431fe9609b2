package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/mesh/internal/tlsfiles"
)

const (
	// DefaultPrefix is the prefix of a URL without one.
	DefaultPrefix = "/dynxds"
	// DefaultTimeout is the default of Options.Timeout.
	DefaultTimeout = 5 * time.Second
	// PasswordEnv is the environment variable with the password, if Options.PasswordFile is empty.
	PasswordEnv = "DYNXDS_STORE_PASSWORD"
	// maxReconnect bounds the pause between attempts to connect to a member, and connectTimeout an attempt.
	maxReconnect, connectTimeout = time.Second, 2 * time.Second
)

// Options are those of Open, by the flags of the command.
type Options struct {
	// URL is etcd://HOST:2379,HOST2:2379/PREFIX, with TLS etcds://…. It names one or more members, and
	// the prefix of all keys; without one, it is DefaultPrefix.
	URL string
	// CA is a PEM file with the authorities of etcd's certificates; without it they are the system's.
	// It asks for TLS, as do Cert and Key. It is read again when a certificate of etcd is not trusted.
	CA string
	// Cert and Key are PEM files with the client's certificate and its key, both or none. They are read
	// for each connection, so that they may be replaced.
	Cert, Key string
	// User is that of etcd's authentication; empty: there is none.
	User string
	// PasswordFile has the User's password, in its first line; without a file it is in the environment,
	// in PasswordEnv. It is read again when etcd refuses the login.
	PasswordFile string
	// Timeout bounds each request, zero for DefaultTimeout.
	Timeout time.Duration
}

const scheme, tlsScheme = "etcd://", "etcds://"

// config checks the options and returns those of etcd's client, and the prefix.
func (o Options) config() (config clientv3.Config, prefix string, err error) {
	if strings.Contains(o.URL, "@") { // wherever: a password may have slashes, and no error may show it
		return config, "", errors.New("--store has a user in its URL: use --store-user and --store-password-file, which other users of the machine do not see")
	}
	rest, secure := strings.CutPrefix(o.URL, tlsScheme)
	if !secure {
		var ok bool
		if rest, ok = strings.CutPrefix(o.URL, scheme); !ok {
			return config, "", fmt.Errorf("--store %q: want %sHOST:2379,HOST2:2379/PREFIX, or %s… with TLS", o.URL, scheme, tlsScheme)
		}
	}
	secure = secure || o.CA != "" || o.Cert != "" || o.Key != ""
	hosts, prefix, _ := strings.Cut(rest, "/")
	if prefix = path.Clean("/" + prefix); prefix == "/" {
		prefix = DefaultPrefix
	}
	protocol := "http://"
	if secure {
		protocol = "https://"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, port, err := net.SplitHostPort(host); err != nil || port == "" {
			return config, "", fmt.Errorf("--store %s: %q is not HOST:PORT of a member", o.URL, host)
		}
		config.Endpoints = append(config.Endpoints, protocol+host)
	}
	if secure {
		if config.TLS, err = tlsfiles.Client("--store-", o.CA, o.Cert, o.Key); err != nil {
			return config, "", err
		}
	}
	if config.Username, config.Password, err = o.login(); err != nil {
		return config, "", err
	}
	config.DialTimeout = o.timeout()
	// After an outage of the network a connection is tried again soon, however long the outage was, and an attempt that
	// the outage has swallowed does not take long. The defaults of gRPC are 2 minutes and 20 seconds.
	config.DialOptions = append(config.DialOptions, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: maxReconnect / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect},
		MinConnectTimeout: connectTimeout,
	}))
	// Else etcd's client says only that time was up, and not why no member is reached.
	config.MaxUnaryRetries = 3
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(failFast))
	// A member that does not answer is left for another one.
	config.DialKeepAliveTime, config.DialKeepAliveTimeout = 10*time.Second, 5*time.Second
	config.MaxCallSendMsgSize = math.MaxInt32 // etcd has its own bound, and says which
	config.Logger = zap.NewNop()              // what fails is an error of a request
	return config, prefix, nil
}

// failFast has a request fail while no member is connected, with the error of the last connection.
func failFast(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, request, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

func (o Options) timeout() time.Duration { return cmp.Or(o.Timeout, DefaultTimeout) }

func (o Options) login() (user, password string, err error) {
	switch {
	case o.User == "" && o.PasswordFile != "":
		return "", "", errors.New("--store-password-file needs --store-user")
	case o.User == "":
		return "", "", nil
	case o.PasswordFile == "":
		password = os.Getenv(PasswordEnv)
	default:
		text, err := os.ReadFile(o.PasswordFile)
		if err != nil {
			return "", "", fmt.Errorf("--store-password-file: %w", err)
		}
		password, _, _ = strings.Cut(string(text), "\n")
		password = strings.TrimSuffix(password, "\r")
	}
	if password == "" {
		return "", "", fmt.Errorf("--store-user %s has no password: use --store-password-file, or set %s", o.User, PasswordEnv)
	}
	return o.User, password, nil
}
