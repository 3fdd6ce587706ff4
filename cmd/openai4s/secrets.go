package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// maxSecret is the size of one secret, in bytes.
const maxSecret = 64 << 10

// readSecrets reads the values that [secrets] names from the submitting shell. Errors name the key and the source,
// never what was read.
func readSecrets(j scheduler.Job) (map[string]string, error) {
	if len(j.Secrets) == 0 {
		return nil, nil
	}
	values := make(map[string]string, len(j.Secrets))
	for name, source := range j.Secrets {
		value, err := readSecret(source)
		if err != nil {
			return nil, &failure{exit: exitBadFile, cause: err,
				message: fmt.Sprintf("%s: secrets.%s: %v", j.File, name, err),
				hint:    secretHint(source)}
		}
		values[name] = value
	}
	return values, nil
}

func readSecret(source scheduler.SecretSource) (string, error) {
	if source.Env != "" {
		value, set := os.LookupEnv(source.Env)
		switch {
		case !set:
			return "", fmt.Errorf("the variable %s is not set", source.Env)
		case len(value) > maxSecret:
			return "", fmt.Errorf("the variable %s holds more than %d bytes", source.Env, maxSecret)
		}
		return value, nil
	}
	f, err := os.Open(source.File)
	if err != nil {
		return "", fmt.Errorf("reading the secret's file: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", source.File)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the secret's file: %w", err)
	case len(data) > maxSecret:
		return "", fmt.Errorf("%s holds more than %d bytes", source.File, maxSecret)
	case strings.ContainsRune(string(data), 0):
		return "", errors.New(source.File + " holds a NUL byte, which no variable can")
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}

func secretHint(source scheduler.SecretSource) string {
	if source.Env != "" {
		return "export " + source.Env + "=… in the shell that submits"
	}
	return "write the value to " + source.File + " and keep that file to yourself (chmod 600)"
}
