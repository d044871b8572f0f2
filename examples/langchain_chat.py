"""A stack as LangChain's chat model: cache, prefix cache and the embedded model behind one interface."""

from langchain_core.prompts import ChatPromptTemplate

from cachestack import CacheStack
from cachestack.integrations.langchain import ChatCacheStack

with CacheStack.local() as stack:
    prompt = ChatPromptTemplate([("system", "Answer in one sentence."), ("human", "{question}")])
    chain = prompt | ChatCacheStack(stack=stack, tenant="acme", max_tokens=24)
    for question in ("How do I reset my password?", "How do I reset my password?"):
        answer = chain.invoke({"question": question})
        print(answer.response_metadata["served_from"], answer.content)
