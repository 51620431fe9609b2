package command

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/mesh/internal/cmdline"
	"github.com/dynxds/dynxds/mesh/internal/store"
)

// storeEnv is the environment variable with the default of --store.
const storeEnv = "DYNXDS_STORE"

// storeFlags adds the flags of a store in etcd.
func storeFlags(cmd *cobra.Command, opts *store.Options) {
	f := cmd.Flags()
	f.StringVar(&opts.URL, "store", os.Getenv(storeEnv), "etcd://HOST:2379,HOST2:2379/PREFIX, or etcds:// for TLS; by default "+storeEnv+" of the environment")
	f.Lookup("store").DefValue = "" // help need not show what the environment has
	cmdline.File(cmd, &opts.CA, "store-ca", "PEM file with the authorities of etcd's certificates; by default those of the system")
	cmdline.File(cmd, &opts.Cert, "store-cert", "PEM file with the certificate for etcd, which is read again for each connection")
	cmdline.File(cmd, &opts.Key, "store-key", "PEM file with the key of that certificate")
	f.StringVar(&opts.User, "store-user", "", "user of etcd's authentication")
	cmdline.File(cmd, &opts.PasswordFile, "store-password-file", "file with that user's password; by default it is "+store.PasswordEnv+" of the environment")
	cmdline.Period(cmd, &opts.Timeout, "store-timeout", store.DefaultTimeout, "how long a request to etcd may take")
}
