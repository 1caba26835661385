"""Real Kafka and PostgreSQL on this machine, without Docker and without an installed Java.

For `weighbridge dev`, `weighbridge demo` and the tests; never for production. The servers listen on
127.0.0.1 only and trust whoever can reach that. Needs the extra `embedded`.
"""
